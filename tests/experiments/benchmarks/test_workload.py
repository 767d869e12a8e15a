"""What benchmarks count: operations against the parameters, medians against the calls."""

import jax
import pytest

from experiments.benchmarks.timing import measure, table
from experiments.benchmarks.workload import CONFIG, MODEL, pin, token_flops
from pgax.models.parameters import init_params, matrices


def test_operations_are_two_a_weight_and_those_of_attention():
  abstract = jax.eval_shape(lambda key: init_params(MODEL, key), jax.random.key(0))
  leaves = zip(jax.tree.leaves(abstract), jax.tree.leaves(matrices(abstract)), strict=True)
  weights = sum(x.size for x, is_matrix in leaves if is_matrix)
  assert token_flops(0) == 2 * weights  # the tied embedding is multiplied once, as output
  embedding = CONFIG.vocab_size * CONFIG.embed_dim
  assert token_flops(0, logits=False) == 2 * (weights - embedding)
  scores_and_mix = 2 * 2 * 10 * CONFIG.num_heads * CONFIG.head_dim * CONFIG.num_layers
  assert token_flops(10) - token_flops(0) == scores_and_mix


def test_functions_take_turns_after_a_warm_up():
  called = []
  calls = {name: lambda name=name: called.append(name) for name in "ab"}
  result = measure(calls, rounds=3)
  assert called == ["a", "b", *"ab" * 3]
  assert all(x.cpu >= 0 and 0 <= x.wall < 60 for x in result.values())


def test_table():
  assert table([("a", "bb"), ("1", "")]) == "| a | bb |\n| - | -- |\n| 1 |    |"


def test_more_threads_than_cores():
  with pytest.raises(ValueError, match="threads is 100000; there are"):
    pin(100_000)
