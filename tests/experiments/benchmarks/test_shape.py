"""Shapes: what is refused, and what is counted."""

import dataclasses
import mmap
import resource
from pathlib import Path

import jax
import pytest

from experiments.benchmarks.machine import step_bytes, token_flops, update_flops
from experiments.benchmarks.shape import Shape, peak_memory
from experiments.benchmarks.sides.with_pgax import decoder_config, rewards
from pgax.models import Decoder
from pgax.models.parameters import init_params, matrices

SHAPE = Shape(kv_heads=2)


def test_zeros_stand_for_sizes_that_follow():
  shape = Shape(heads=8, kv_heads=0, hidden=0, embed=64)
  assert (shape.kv_heads, shape.hidden, shape.head_dim, shape.rows) == (8, 256, 8, 64)
  assert Shape(**dataclasses.asdict(shape)) == shape


@pytest.mark.parametrize(
  ("sizes", "message"),
  [
    ({"heads": 3}, "heads is 3; it must divide embed, which is 256"),
    ({"heads": 8, "kv_heads": 3}, "kv_heads is 3; it must divide heads, which is 8"),
    ({"embed": 12, "kv_heads": 1}, "the width of a head, 3, must be even"),
    ({"micro": 3}, "micro is 3; it must divide prompts, which is 8"),
    ({"layers": 0}, "layers is 0; it must be at least 1"),
    ({"heads": -4}, "heads is -4; it must be at least 1"),
    ({"gen_len": 0}, "gen_len is 0; it must be at least 1"),
    ({"vocab": 2**31}, "vocab is 2147483648; it must be at least 4"),
    ({"beta": -0.1}, "beta is -0.1; it must be at least 0"),
    ({"lr": float("nan")}, "lr is nan; it must be at least 0, and finite"),
    ({"dtype": "int8"}, "dtype is 'int8'; it must be one of float32, bfloat16"),
    ({"threads": 100_000}, "threads is 100000; there are"),
  ],
)
def test_impossible_shapes(sizes, message):
  with pytest.raises(ValueError, match=message):
    Shape(**sizes)


def test_operations_are_two_a_weight_and_those_of_attention():
  model = Decoder(decoder_config(SHAPE))
  abstract = jax.eval_shape(lambda key: init_params(model, key), jax.random.key(0))
  leaves = zip(jax.tree.leaves(abstract), jax.tree.leaves(matrices(abstract)), strict=True)
  weights = sum(x.size for x, is_matrix in leaves if is_matrix)
  assert token_flops(SHAPE, 0) == 2 * weights  # the tied embedding counts once, as output
  embedding = SHAPE.vocab * SHAPE.embed
  assert token_flops(SHAPE, 0, logits=False) == 2 * (weights - embedding)
  scores_and_mix = 2 * 2 * 10 * SHAPE.heads * SHAPE.head_dim * SHAPE.layers
  assert token_flops(SHAPE, 10) - token_flops(SHAPE, 0) == scores_and_mix


def test_an_update_without_reference_is_three_forward_passes_of_four():
  without = dataclasses.replace(SHAPE, beta=0.0)
  assert update_flops(without) == 0.75 * update_flops(SHAPE)


def test_bytes_of_a_step():
  shape = Shape(layers=1, embed=8, heads=2, kv_heads=1, prompts=2, group=3, gen_len=10)
  keys_and_values = 2 * 4  # of a token
  tokens = 2 * 64 + 6 * 5
  assert step_bytes(shape, params=100) == 4 * (100 + keys_and_values * tokens)
  half = dataclasses.replace(shape, dtype="bfloat16")
  assert step_bytes(half, params=100) == step_bytes(shape, params=100) / 2


def test_peak_memory_is_that_of_this_process():
  resident = int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE
  most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
  assert 0.9 * resident < peak_memory() < 1.01 * most


def test_rewards_differ_within_every_group():
  assert (rewards(SHAPE).std(axis=-1) > 0).all()
