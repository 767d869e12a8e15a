"""The 2026 interface of CS336's assignment 5 agrees with NumPy and with that of 2025."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgax.interop import cs336, cs336_2026
from tests.strategies import floats, masks

SHAPE, ROWS = (4, 5), (4,)
LOGP = floats(SHAPE, -3, 0)


def test_rewards_of_rollouts():
  def reward_fn(response, truth):
    return {"reward": float(response), "format_reward": float(truth == "yes")}

  raw, metadata = cs336_2026.compute_rollout_rewards(
    reward_fn, ["1", "0", "0.5"], ["yes", "no", "no"]
  )
  np.testing.assert_allclose(raw, [1, 0, 0.5])
  assert metadata["reward_mean"] == 0.5
  assert metadata["format_reward"] == pytest.approx(1 / 3)
  with pytest.raises(ValueError, match="0 responses and 0 ground truths"):
    cs336_2026.compute_rollout_rewards(reward_fn, [], [])


@pytest.mark.parametrize(
  ("baseline", "normalizer"),
  list(itertools.product(("mean", "none"), ("std", "none", "mean"))),
)
@given(st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0]), min_size=6, max_size=6))
def test_advantages(baseline, normalizer, rewards):
  advantages, metadata = cs336_2026.compute_group_normalized_rewards(
    jnp.array(rewards), 3, baseline, 1e-3, normalizer
  )
  expected = []
  for group in np.split(np.array(rewards), 2):
    value = group - group.mean() if baseline == "mean" else group
    divisors = {"std": group.std(ddof=1) + 1e-3, "mean": group.mean() + 1e-3, "none": 1.0}
    expected.extend(value / divisors[normalizer])
  np.testing.assert_allclose(advantages, expected, rtol=1e-3, atol=1e-4)
  mean = pytest.approx(np.mean(expected), rel=1e-3, abs=1e-3)
  assert metadata["advantage_mean"] == mean


@given(floats(ROWS), LOGP, LOGP, masks(SHAPE), st.sampled_from([0.1, 0.9, 10.0]))
def test_losses(advantages, logp, old_logp, mask, cliprange):
  options = {"old_log_probs": old_logp, "cliprange": cliprange, "response_mask": mask}
  column = advantages[:, None].astype(np.float64)
  log_ratio = logp.astype(np.float64) - old_logp
  count = np.maximum(mask.sum(-1, keepdims=True), 1)
  sequence = np.exp((log_ratio * mask).sum(-1, keepdims=True) / count)
  real = mask.any(-1, keepdims=True)

  def clipped(ratio):
    bounded = np.clip(ratio, 1 - cliprange, 1 + cliprange)
    return -np.minimum(ratio * column, bounded * column)

  for method, expected in (
    ("none", -column * logp),
    ("noclip", -column * np.exp(log_ratio)),
    ("grpo", clipped(np.exp(log_ratio))),
    ("gspo", np.where(real, clipped(sequence), 0.0)),
  ):
    for given_advantages in (advantages, advantages[:, None]):
      loss, _ = cs336_2026.compute_policy_gradient_loss(
        given_advantages, logp, method, **options
      )
      expected = np.broadcast_to(expected, SHAPE)
      np.testing.assert_allclose(loss, expected, rtol=1e-4, atol=1e-5)


@given(floats(SHAPE), masks(SHAPE), st.floats(0.5, 50))
def test_aggregation(loss, mask, constant):
  aggregate = cs336_2026.aggregate_loss_across_microbatch
  poisoned = np.where(mask, loss, np.nan)
  total = (loss * mask).sum() / constant
  assert aggregate(poisoned, mask, "constant", constant) == pytest.approx(
    float(total), rel=1e-4, abs=1e-5
  )
  real = mask.any(-1)
  means = (loss * mask).sum(-1)[real] / mask.sum(-1)[real]
  expected = float(means.mean()) if real.any() else 0.0
  assert aggregate(poisoned, mask) == pytest.approx(expected, rel=1e-4, abs=1e-5)


def test_the_editions_have_the_same_gradient():
  rng = np.random.default_rng(0)
  logp, old_logp = -rng.random((2, *SHAPE)).astype(np.float32)
  mask = np.arange(5) < rng.integers(1, 6, (4, 1))
  advantages = rng.normal(size=(4, 1)).astype(np.float32)

  def loss(logp):
    tokens, _ = cs336_2026.compute_policy_gradient_loss(
      advantages, logp, "grpo", old_logp, 0.2
    )
    return cs336_2026.aggregate_loss_across_microbatch(tokens, mask) / 2

  value, gradient = jax.value_and_grad(loss)(logp)
  expected, _, step = cs336.grpo_microbatch_train_step(
    logp,
    mask,
    2,
    "grpo_clip",
    advantages=advantages,
    old_log_probs=old_logp,
    cliprange=0.2,
  )
  assert value == pytest.approx(float(expected), rel=1e-6)
  np.testing.assert_allclose(gradient, step, rtol=1e-6)


def test_bad_arguments_raise():
  logp = jnp.zeros(SHAPE)
  advantages = cs336_2026.compute_group_normalized_rewards
  loss = cs336_2026.compute_policy_gradient_loss
  with pytest.raises(ValueError, match="group_size is 3; .* which is 4"):
    advantages(jnp.zeros(4), 3)
  with pytest.raises(ValueError, match="baseline is 'max'; allowed are mean, none"):
    advantages(jnp.zeros(4), 2, baseline="max")
  with pytest.raises(ValueError, match="normalizer is 'var'; allowed are std, none, mean"):
    advantages(jnp.zeros(4), 2, advantage_normalizer="var")
  with pytest.raises(ValueError, match="method is 'ppo'; allowed are none, noclip, grpo"):
    loss(jnp.zeros(4), logp, "ppo")
  with pytest.raises(ValueError, match="'noclip' requires old_log_probs$"):
    loss(jnp.zeros(4), logp, "noclip")
  with pytest.raises(ValueError, match="'gspo' requires old_log_probs and cliprange"):
    loss(jnp.zeros(4), logp, "gspo", logp)
  with pytest.raises(ValueError, match="loss_normalization is 'mean'; allowed are"):
    cs336_2026.aggregate_loss_across_microbatch(logp, logp, "mean")
  with pytest.raises(ValueError, match="normalization_constant is None"):
    cs336_2026.aggregate_loss_across_microbatch(logp, logp, "constant")


@pytest.mark.parametrize("baseline", ["mean", "none"])
@pytest.mark.parametrize("normalizer", ["std", "none", "mean"])
@pytest.mark.parametrize("eps", [-1.0, float("nan")])
def test_eps_is_at_least_zero(baseline, normalizer, eps):
  with pytest.raises(ValueError, match="it must be at least 0"):
    cs336_2026.compute_group_normalized_rewards([1.0, 0.0], 2, baseline, eps, normalizer)


def test_lists_are_arrays():
  logp, mask = [[-1.0, -2.0], [-0.5, -3.0]], [[1, 0], [1, 1]]
  tokens, _ = cs336_2026.compute_policy_gradient_loss([[1.0], [-1.0]], logp)
  np.testing.assert_allclose(tokens, [[1, 2], [-0.5, -3]])
  mean = cs336_2026.aggregate_loss_across_microbatch(tokens.tolist(), mask)
  assert mean == pytest.approx((1 - 1.75) / 2)
