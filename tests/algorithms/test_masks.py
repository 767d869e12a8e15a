"""Tokens that exist but were not sampled by the policy have no effect on learning."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pgax import algorithms
from tests import arrays

LENGTH = 9
ROLLOUT = arrays.multi_turn(length=LENGTH)
FEEDBACK, VALUES = arrays.feedback(length=LENGTH), arrays.values(length=LENGTH)
OBSERVED = np.asarray(ROLLOUT.token_mask & ~ROLLOUT.action_mask)
OUTPUTS = VALUES * 1.5


def clean(x):
  """The array with 0 where the policy did not sample."""
  return jnp.where(ROLLOUT.action_mask, x, 0)


def poisoned(x, poison):
  """The array with poison at observed tokens."""
  return jnp.where(OBSERVED, poison, x)


def value_and_gradients(algorithm, change):
  """The batch, the loss and its gradients, with changed inputs at observed tokens."""
  values = change(VALUES) if algorithm.critic else None
  rollout = ROLLOUT.replace(
    logp=change(clean(ROLLOUT.logp)), sample_logp=change(clean(ROLLOUT.logp - 0.1))
  )
  feedback = FEEDBACK.replace(step_rewards=change(FEEDBACK.step_rewards))
  batch = algorithms.prepare(
    algorithm,
    rollout,
    feedback,
    change(clean(ROLLOUT.logp)),
    change(clean(ROLLOUT.logp - 0.3)),
    kl_coef=0.04,
    values=values,
  )

  def loss(logp, outputs):
    outputs = outputs if algorithm.critic else None
    return algorithms.loss(algorithm, logp, batch, 0.04, outputs)

  grad = jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)
  return batch, grad(change(clean(1.8 * ROLLOUT.logp)), change(OUTPUTS))


@pytest.mark.parametrize("preset", algorithms.presets.ALL)
def test_observed_tokens_hold_anything(preset):
  expected = value_and_gradients(preset(), lambda x: x)
  for poison in (np.nan, np.inf):
    actual = value_and_gradients(preset(), lambda x, p=poison: poisoned(x, p))
    for one, two in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
      np.testing.assert_array_equal(one, two)
  batch, (_, gradients) = expected
  assert OBSERVED.any() and not np.any(np.asarray(batch.loss_mask)[OBSERVED])
  np.testing.assert_array_equal(batch.token_mask, ROLLOUT.token_mask)
  for gradient in gradients:
    assert np.all(np.asarray(gradient)[OBSERVED] == 0)


@pytest.mark.parametrize("preset", algorithms.presets.ALL)
def test_gaps_change_no_loss(preset):
  """Actions have the same loss whether or not tokens are observed between them."""
  # Without DAPO's length penalty, which counts observed tokens, too.
  algorithm = dataclasses.replace(preset(), shaping=())
  order = np.argsort(~np.asarray(ROLLOUT.action_mask), axis=-1, kind="stable")

  def compact(x):
    return jnp.take_along_axis(x, order, axis=-1)

  def total(arrange):
    rollout = ROLLOUT.replace(
      token_mask=arrange(ROLLOUT.action_mask),
      action_mask=arrange(ROLLOUT.action_mask),
      logp=arrange(ROLLOUT.logp),
      sample_logp=arrange(ROLLOUT.logp),
    )
    ends = FEEDBACK.step_ends & ROLLOUT.action_mask
    feedback = FEEDBACK.replace(
      step_rewards=arrange(FEEDBACK.step_rewards), step_ends=arrange(ends)
    )
    batch = algorithms.prepare(
      algorithm,
      rollout,
      feedback,
      arrange(ROLLOUT.logp),
      arrange(ROLLOUT.logp - 0.3),
      kl_coef=0.04,
      values=arrange(VALUES) if algorithm.critic else None,
    )
    outputs = arrange(OUTPUTS) if algorithm.critic else None
    return algorithms.loss(algorithm, arrange(1.8 * ROLLOUT.logp), batch, 0.04, outputs)

  for one, two in zip(total(compact), total(lambda x: x), strict=True):
    np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-6)
