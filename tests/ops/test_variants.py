"""Every op gives the same under jit, and over a leading axis under vmap."""

import functools

import chex
import jax
import numpy as np
import pytest

from tests.ops.calls import CALLS, FUNCTIONS

# These reduce over the batch: under vmap each entry is a batch.
WHOLE_BATCH = {
  "advantages.batch_mean",
  "advantages.batch_scaled",
  "advantages.gdpo",
  "advantages.moving_average",
  "advantages.whiten",
  "advantages.reinforce_pp",
  "aggregation.sequence_mean",
  "aggregation.token_mean",
  "aggregation.fixed_length",
  "aggregation.sequence_sum",
  "correction.effective_sample_size",
  "entropy.top_fraction",
  "masking.masked_sum",
  "masking.masked_mean",
}
NAMES = sorted(CALLS)


def split(name):
  """An op with its settings bound, and the arrays to call it with, by name."""
  arrays = {k: v for k, v in CALLS[name].items() if isinstance(v, np.ndarray)}
  bound = {k: v for k, v in CALLS[name].items() if k not in arrays}
  return functools.partial(FUNCTIONS[name], **bound), arrays


@pytest.mark.parametrize("name", NAMES)
def test_jit(name):
  function, arrays = split(name)
  result = jax.jit(lambda given: function(**given))(arrays)
  chex.assert_trees_all_close(result, function(**arrays), rtol=1e-5, atol=1e-6)
  chex.assert_tree_all_finite(result)


@pytest.mark.parametrize("name", NAMES)
def test_vmap(name):
  function, arrays = split(name)
  result = jax.jit(jax.vmap(lambda given: function(**given)))(arrays)
  if name in WHOLE_BATCH:
    entries = [jax.tree.map(lambda x, n=n: x[n], arrays) for n in range(2)]
    each = [function(**entry) for entry in entries]
    expected = jax.tree.map(lambda *xs: np.stack(xs), *each)
  else:
    expected = function(**arrays)
  chex.assert_trees_all_close(result, expected, rtol=1e-5, atol=1e-6)
