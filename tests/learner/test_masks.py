"""The masks in the policy step: tokens between actions are attended to, not trained on."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pgax import algorithms
from pgax.learner.forward import completion_logp
from tests import arrays, tiny

ROLLOUT, FEEDBACK = arrays.multi_turn(), tiny.feedback(length=9)
BETWEEN = ROLLOUT.token_mask & ~ROLLOUT.action_mask


@pytest.mark.parametrize("preset", [algorithms.grpo, algorithms.ppo, algorithms.dapo])
def test_what_lies_between_actions_is_poison(preset):
  step = tiny.policy_step(preset(epochs=1))
  poisoned = ROLLOUT.replace(
    logp=jnp.where(BETWEEN, jnp.nan, ROLLOUT.logp),
    sample_logp=jnp.where(BETWEEN, jnp.inf, ROLLOUT.sample_logp),
  )
  clean, update = step(tiny.state(preset(epochs=1)), ROLLOUT, FEEDBACK)
  other, same = step(tiny.state(preset(epochs=1)), poisoned, FEEDBACK)
  for name, value in update.metrics.items():
    assert np.isfinite(value) and same.metrics[name] == value, name
  for ours, theirs in zip(*map(jax.tree.leaves, (clean.params, other.params)), strict=True):
    np.testing.assert_array_equal(ours, theirs)
  assert not np.any(np.asarray(update.advantages)[~np.asarray(ROLLOUT.action_mask)])


def test_tokens_between_actions_are_attended_to():
  n, g, t = np.argwhere(np.asarray(BETWEEN))[0]
  token = ROLLOUT.tokens[n, g, t]
  other = ROLLOUT.replace(tokens=ROLLOUT.tokens.at[n, g, t].set(3 + (token + 1) % 200))
  ours, theirs = (
    completion_logp(tiny.MODEL, tiny.params(), x)[0] for x in (ROLLOUT, other)
  )
  later = np.asarray(ROLLOUT.token_mask)[n, g, t + 1 :]
  assert later.any()
  assert np.all((ours[n, g, t + 1 :] != theirs[n, g, t + 1 :])[later])
