"""The critic: zero at the start, blind to what comes, and given a decoder's weights."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pgax.models import ScalarDecoder, completion_outputs
from pgax.models.heads import with_decoder
from pgax.models.parameters import init_params
from tests import tiny

CRITIC, ROLLOUT = ScalarDecoder(tiny.CONFIG), tiny.rollout()


@pytest.fixture(scope="module")
def outputs():
  """The outputs before every token, compiled once."""

  @jax.jit
  def apply(params, tokens):
    r = ROLLOUT
    return completion_outputs(
      CRITIC, params, r.prompt_tokens, r.prompt_mask, tokens, r.mask
    )

  return apply


@pytest.fixture(scope="module")
def fresh():
  return init_params(CRITIC, jax.random.key(0))


def lively(params):
  """The same decoder under a head that is not zero."""
  head = jnp.linspace(-1, 1, tiny.CONFIG.embed_dim)
  return {"params": dict(params["params"]) | {"head": head}}


def test_starts_at_zero_whatever_the_decoder(outputs, fresh):
  given = with_decoder(fresh, tiny.params())
  for params in (fresh, given):
    found = outputs(params, ROLLOUT.tokens)
    assert found.shape == ROLLOUT.tokens.shape and found.dtype == jnp.float32
    assert np.all(np.asarray(found) == 0)


def test_takes_the_decoders_weights_and_keeps_its_head(fresh):
  given = with_decoder(lively(fresh), tiny.params())["params"]
  for ours, theirs in zip(
    jax.tree.leaves(given["decoder"]), jax.tree.leaves(tiny.params()["params"]), strict=True
  ):
    np.testing.assert_array_equal(ours, theirs)
  np.testing.assert_array_equal(given["head"], lively(fresh)["params"]["head"])


def test_a_value_sees_what_came_before_its_token_and_nothing_else(outputs, fresh):
  params = lively(fresh)
  before = np.asarray(outputs(params, ROLLOUT.tokens))
  changed = ROLLOUT.tokens.at[:, :, 2].add(1)
  after = np.asarray(outputs(params, changed))
  real = np.asarray(ROLLOUT.mask)
  seen = real[..., :3]
  np.testing.assert_array_equal(after[..., :3][seen], before[..., :3][seen])
  moved = np.abs(after - before)[..., 3:][real[..., 3:]]
  assert moved.size and np.all(moved > 0)
  # Before the first token there is only the prompt, which the group shares.
  assert np.ptp(before[..., 0], axis=1).max() < 1e-6 < np.ptp(before[..., 0])


def test_values_are_the_head_of_the_decoders_features(outputs, fresh):
  params = lively(fresh)
  row = ROLLOUT.prompt_mask[0]
  length = int(row.sum())
  tokens = jnp.concatenate([ROLLOUT.prompt_tokens[0, :length], ROLLOUT.tokens[0, 0]])
  positions = jnp.arange(len(tokens))
  found, _ = CRITIC.apply(params, tokens[None, None], positions[None, None])
  count = int(ROLLOUT.mask[0, 0].sum())
  expected = found[0, 0, length - 1 : length - 1 + count]
  ours = outputs(params, ROLLOUT.tokens)[0, 0, :count]
  np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-5)
