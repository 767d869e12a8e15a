"""The supervised step: neither packing nor microbatches change it; constants divide it."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from pgax import algorithms
from pgax.distributed.mesh import make_mesh
from pgax.distributed.partitioning import shardings_of
from pgax.interop import cs336
from pgax.learner import OptimizerConfig
from pgax.learner.forward import completion_logp, row_logp
from pgax.learner.optimizer import make_optimizer
from pgax.learner.state import abstract_state, init_state
from pgax.learner.supervised_step import make_supervised_step, token_weights
from pgax.types import DemonstrationRows
from tests import tiny

PROMPT, LENGTH = 5, 7
ROLLOUT = tiny.rollout()
COUNT = 6  # demonstrations
# Of the rows that they are packed in, fewer than there are of them: any three fit into one.
HEIGHT, WIDE = 3, 3 * (PROMPT + LENGTH)


def demonstrations(seed):
  """Ragged texts: prompts of 1 to 5 tokens, solutions of 1 to 7."""
  rng = np.random.default_rng(seed)
  sizes = zip(
    rng.integers(1, PROMPT + 1, COUNT), rng.integers(1, LENGTH + 1, COUNT), strict=True
  )
  return [(rng.integers(3, 259, p), rng.integers(3, 259, s)) for p, s in sizes]


def rows_of(groups, width, height):
  """Each group of texts in one row; rows that are left over stay empty."""
  arrays = [np.zeros((height, width), t) for t in (np.int32, bool, np.int32, np.int32)]
  for row, group in enumerate(groups):
    at = 0
    for segment, (prompt, solution) in enumerate(group, start=1):
      size = len(prompt) + len(solution)
      for array, values in zip(
        arrays,
        (
          np.concatenate([prompt, solution]),
          np.arange(size) >= len(prompt),
          np.arange(size),
          segment,
        ),
        strict=True,
      ):
        array[row, at : at + size] = values
      at += size
  return DemonstrationRows(*arrays)


def first_fit(texts, rng):
  """The texts in rows in some order, as many as fit."""
  groups = []
  for index in rng.permutation(len(texts)):
    size = sum(map(len, texts[index]))
    fits = [g for g in groups if sum(sum(map(len, t)) for t in g) + size <= WIDE]
    if fits:
      fits[0].append(texts[index])
    else:
      groups.append([texts[index]])
  return groups


@pytest.fixture(scope="module")
def objective():
  """Loss and gradient of rows under both kinds of weights, compiled once a shape."""
  params = tiny.params()

  @jax.jit
  def result(rows, constant):
    def loss(params, weights):
      logp, _ = row_logp(tiny.MODEL, params, rows)
      return -jnp.sum(jnp.where(rows.learned, weights * logp, 0.0))

    mean, fixed = token_weights(rows), token_weights(rows, 1.0) / constant
    both = [jax.value_and_grad(loss)(params, w) for w in (mean, fixed)]
    return both, row_logp(tiny.MODEL, params, rows)[0]

  return result


@pytest.mark.parametrize("seed", range(5))
def test_packed_is_unpacked(objective, seed):
  texts, rng = demonstrations(seed), np.random.default_rng(seed + 100)
  one = rows_of([[text] for text in texts], PROMPT + LENGTH, COUNT)
  packed = rows_of(first_fit(texts, rng), WIDE, HEIGHT)
  assert packed.segments.max() > 1
  (alone, _), (together, _) = objective(one, 3.0), objective(packed, 3.0)
  for (loss, gradient), (other, theirs) in zip(alone, together, strict=True):
    assert other == pytest.approx(float(loss), rel=1e-6)
    for a, b in zip(jax.tree.leaves(gradient), jax.tree.leaves(theirs), strict=True):
      np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-6 * np.abs(a).max() + 1e-8)


def test_a_row_is_read_as_the_trainer_reads_a_completion(objective):
  texts = demonstrations(7)
  rows = rows_of([[text] for text in texts], PROMPT + LENGTH, COUNT)
  _, logp = objective(rows, 1.0)
  prompts = rows_of([[(p, [])] for p, _ in texts], PROMPT, COUNT)
  solutions = rows_of([[([], s)] for _, s in texts], LENGTH, COUNT)
  expected, _ = completion_logp(
    tiny.MODEL,
    tiny.params(),
    ROLLOUT.replace(
      prompt_tokens=prompts.tokens,
      prompt_mask=prompts.segments > 0,
      tokens=solutions.tokens[:, None],
      token_mask=solutions.learned[:, None],
    ),
  )
  np.testing.assert_allclose(
    logp[rows.learned], expected[:, 0][solutions.learned], rtol=1e-5, atol=1e-5
  )


def test_the_constant_is_that_of_masked_normalize(objective):
  rows = rows_of([[text] for text in demonstrations(3)], PROMPT + LENGTH, COUNT)
  (_, (loss, _)), logp = objective(rows, 11.0)
  expected = -cs336.masked_normalize(logp, rows.learned, 11.0, dim=-1).mean()
  assert loss == pytest.approx(float(expected), rel=1e-6)
  np.testing.assert_allclose(
    token_weights(rows, 11.0)[rows.learned], 1 / (11 * COUNT), rtol=1e-6
  )


def test_a_text_does_not_see_its_neighbours(objective):
  texts = demonstrations(1)
  others = [(p[::-1] % 200 + 3, s[::-1] % 200 + 3) for p, s in texts]
  one, two = ([[t[0], texts[1], t[2]]] for t in (texts, others))
  packed = [rows_of(group, WIDE, HEIGHT) for group in (one, two)]
  middle = (packed[0].segments == 2) & packed[0].learned
  (_, a), (_, b) = (objective(rows, 1.0) for rows in packed)
  np.testing.assert_array_equal(a[middle], b[middle])
  assert not np.array_equal(a, b)


def test_microbatches_and_empty_rows_change_nothing():
  learner = tiny.learner(algorithms.grpo(), optax.sgd(1.0))
  rows = rows_of(first_fit(demonstrations(5), np.random.default_rng(0)), WIDE, COUNT)
  results = []
  for parts in (1, 3):
    step = make_supervised_step(learner, normalize_constant=4.0, microbatches=parts)
    results.append(step(tiny.state(algorithms.grpo(), optax.sgd(1.0)), rows))
  (one, metrics), (three, again) = results
  for name, value in metrics.items():
    assert again[name] == pytest.approx(float(value), rel=1e-5), name
  assert metrics["demonstrations"] == COUNT
  assert metrics["tokens/learned"] == rows.learned.sum()
  assert metrics["tokens/padding"] == pytest.approx((rows.segments == 0).mean())
  for a, b in zip(*(jax.tree.leaves(s.params) for s in (one, three)), strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def test_learns_and_is_traced_once():
  optimizer = make_optimizer(OptimizerConfig(learning_rate=3e-3, warmup_steps=0))
  learner = tiny.learner(algorithms.grpo(), optimizer)
  shardings = shardings_of(abstract_state(learner, make_mesh()))
  step = make_supervised_step(learner, shardings=shardings)
  state = init_state(learner, make_mesh(), 0)
  rows = rows_of([[text] for text in demonstrations(0)], PROMPT + LENGTH, COUNT)
  losses = []
  for _ in range(30):
    state, metrics = step(state, rows)
    losses.append(float(metrics["loss"]))
  assert losses[0] == pytest.approx(np.log(260), rel=0.2)
  assert losses[-1] < 0.5 * losses[0]
  assert step._cache_size() == 1


def test_segments_and_a_cache_do_not_go_together():
  tokens = jnp.ones((1, 1, 3), jnp.int32)
  _, cache = jax.jit(tiny.MODEL.apply)(tiny.params(), tokens, jnp.arange(3)[None, None])
  with pytest.raises(ValueError, match="segments can't be combined with a cache"):
    tiny.MODEL.apply(
      tiny.params(),
      tokens,
      jnp.arange(3)[None, None],
      cache,
      tokens,
      method=tiny.MODEL.features,
    )
