"""The critic starts at zero, is causal, and takes over a decoder's weights."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pgax.models import ScalarDecoder, completion_features
from pgax.models.heads import with_decoder
from tests import tiny

CRITIC, ROLLOUT = ScalarDecoder(tiny.CONFIG), tiny.rollout()


@pytest.fixture(scope="module")
def outputs():
  """Computes the outputs before every token; compiled once."""

  @jax.jit
  def apply(params, tokens):
    r = ROLLOUT
    hidden, _ = completion_features(
      CRITIC, params, r.prompt_tokens, r.prompt_mask, tokens, r.token_mask
    )
    return CRITIC.apply(params, hidden, method=CRITIC.outputs)

  return apply


@pytest.fixture(scope="module")
def fresh():
  return tiny.fresh(CRITIC)


def with_random_head(params):
  """The same decoder with a head that is not zero."""
  head = jnp.linspace(-1, 1, tiny.CONFIG.embed_dim)
  return {"params": dict(params["params"]) | {"head": head}}


def test_starts_at_zero_whatever_the_decoder(outputs, fresh):
  for params in (fresh, with_decoder(fresh, tiny.params())):
    values = outputs(params, ROLLOUT.tokens)
    assert values.shape == ROLLOUT.tokens.shape and values.dtype == jnp.float32
    assert np.all(np.asarray(values) == 0)


def test_takes_the_decoders_weights_and_keeps_its_head(fresh):
  params = with_decoder(with_random_head(fresh), tiny.params())["params"]
  decoder = tiny.params()["params"]
  jax.tree.map(np.testing.assert_array_equal, params["decoder"], decoder)
  np.testing.assert_array_equal(params["head"], with_random_head(fresh)["params"]["head"])


def test_a_value_depends_on_the_tokens_before_its_own_alone(outputs, fresh):
  params = with_random_head(fresh)
  before = np.asarray(outputs(params, ROLLOUT.tokens))
  changed = ROLLOUT.tokens.at[:, :, 2].add(1)
  after = np.asarray(outputs(params, changed))
  real = np.asarray(ROLLOUT.token_mask)
  early = real[..., :3]
  np.testing.assert_array_equal(after[..., :3][early], before[..., :3][early])
  change = np.abs(after - before)[..., 3:][real[..., 3:]]
  assert change.size and np.all(change > 0)
  # Before the first token there is only the prompt, which the group shares.
  assert np.ptp(before[..., 0], axis=1).max() < 1e-6 < np.ptp(before[..., 0])


def test_values_are_the_head_of_the_decoders_features(outputs, fresh):
  params = with_random_head(fresh)
  row = ROLLOUT.prompt_mask[0]
  length = int(row.sum())
  tokens = jnp.concatenate([ROLLOUT.prompt_tokens[0, :length], ROLLOUT.tokens[0, 0]])
  positions = jnp.arange(len(tokens))
  values, _ = CRITIC.apply(params, tokens[None, None], positions[None, None])
  count = int(ROLLOUT.token_mask[0, 0].sum())
  expected = values[0, 0, length - 1 : length - 1 + count]
  actual = outputs(params, ROLLOUT.tokens)[0, 0, :count]
  np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)
