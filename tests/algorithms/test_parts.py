"""Parts: every setting changes the result, and missing inputs are named."""

import dataclasses
import types

import jax.numpy as jnp
import numpy as np
import pytest

from pgax import advantages, algorithms, correction, returns, shaping
from pgax.algorithms import filters, parts
from pgax.algorithms.stateful import StepSignals
from pgax.types import AdvantageInputs
from tests import arrays

ROLLOUT, FEEDBACK, VALUES = arrays.rollout(), arrays.feedback(), arrays.values()
MASK, REWARDS = ROLLOUT.action_mask, FEEDBACK.rewards
LENGTHS = np.asarray(MASK).sum(-1)
INPUTS = AdvantageInputs(
  rewards=REWARDS,
  valid=FEEDBACK.valid,
  action_mask=MASK,
  penalty=0.1 * VALUES * MASK,
  baseline=jnp.float32(0.3),
  values=VALUES * MASK,
  greedy_rewards=FEEDBACK.greedy_rewards,
  step_rewards=FEEDBACK.step_rewards,
  step_ends=FEEDBACK.step_ends & MASK,
  components=arrays.values(length=2, seed=5),
)
BATCH = algorithms.prepare(
  algorithms.ppo(),
  ROLLOUT,
  FEEDBACK,
  ROLLOUT.logp,
  ROLLOUT.logp - 0.3 * MASK,
  values=VALUES,
)
# Ratios from e^-1.5 to e^1.5, so that every bound is met.
LIVE = ROLLOUT.logp + 3 * (VALUES - 0.5) * MASK


def advantage(part):
  return part(INPUTS)


def surrogate(part):
  return jnp.where(MASK, part(LIVE, BATCH).loss, 0)


def weight(part):
  return part(MASK)


def correct(part):
  return jnp.where(MASK, part(LIVE, ROLLOUT.logp, MASK), 0)


def keep(part):
  return part(REWARDS, FEEDBACK.valid, ROLLOUT)


def shape(part):
  return part(REWARDS, FEEDBACK.valid, ROLLOUT)


def value_loss(part):
  return jnp.where(MASK, part(2 * VALUES, BATCH), 0)


CALLS = {
  parts.BatchMean: (advantage, {}),
  parts.DecoupledNormalized: (
    advantage,
    {"weights": (1.0, 3.0), "eps": 0.1},
  ),
  parts.NoBaseline: (advantage, {}),
  parts.TopEntropy: (lambda part: part(VALUES, MASK), {"fraction": 0.7}),
  parts.LeaveOneOut: (advantage, {}),
  parts.GroupNormalized: (advantage, {"ddof": 1, "eps": 0.1, "scale": "batch"}),
  parts.GroupCentered: (advantage, {}),
  parts.LengthWeighted: (advantage, {}),
  parts.RelativeToMean: (advantage, {}),
  parts.MovingAverageBaseline: (advantage, {}),
  parts.GreedyBaseline: (advantage, {}),
  parts.ProcessNormalized: (advantage, {"ddof": 1, "eps": 0.1}),
  parts.ReturnToGo: (advantage, {"group_baseline": True, "discount": 0.5}),
  parts.GAE: (advantage, {"discount": 0.5, "lam": 0.2, "whiten": False}),
  parts.LengthAdaptiveGAE: (advantage, {"discount": 0.5, "alpha": 0.9, "whiten": False}),
  parts.LambdaReturn: (advantage, {"discount": 0.5, "lam": 0.2}),
  parts.UnitAdvantage: (advantage, {}),
  parts.RewardAbove: (keep, {"threshold": 0.7}),
  parts.PolicyGradient: (surrogate, {}),
  parts.Unclipped: (surrogate, {}),
  parts.Clipped: (surrogate, {"clip_low": 0.1, "clip_high": 0.5, "dual_clip": 1.5}),
  parts.SequenceClipped: (surrogate, {"clip_low": 0.1, "clip_high": 0.1}),
  parts.GeometricMean: (surrogate, {"clip": 0.1}),
  parts.ClippedWeight: (surrogate, {"clip_low": 0.1, "clip_high": 0.1}),
  parts.SigmoidGate: (surrogate, {"tau_pos": 2.0, "tau_neg": 2.0}),
  # Its loss is that of `Unclipped`; only its gradient differs (tests/ops).
  parts.ProbabilityClipped: (
    lambda part: part(LIVE, BATCH.replace(rollout_logp=LIVE)).clipped & MASK,
    {"delta": 0.01, "anchor": "sampler"},
  ),
  parts.ReferenceWeighted: (surrogate, {"clip": 0.1, "importance": "none"}),
  parts.MirrorDescent: (surrogate, {"tau": 0.5}),
  parts.TargetMatching: (surrogate, {"eta": 0.5}),
  parts.Pairwise: (surrogate, {"clip": 0.5, "form": "joint"}),
  parts.Contrastive: (surrogate, {"beta": 0.5}),
  parts.FixedLength: (weight, {"max_length": 9}),
  parts.TruncatedWeights: (correct, {"cap": 1.1}),
  parts.IcePop: (correct, {"low": 0.9, "high": 1.5}),
  parts.MissingEOS: (shape, {"penalty": 0.5, "replace": True}),
  parts.Overlong: (shape, {"buffer": 4, "coef": 0.5}),
  parts.SquaredError: (value_loss, {"clip": None}),
  parts.CrossEntropy: (value_loss, {}),
}


def test_every_part_is_tested():
  assert {kind.__name__ for kind in CALLS} == set(parts.__all__)
  for kind, (_, changes) in CALLS.items():
    assert {field.name for field in dataclasses.fields(kind)} == set(changes), kind


@pytest.mark.parametrize(
  ("kind", "name"), [(kind, name) for kind, (_, x) in CALLS.items() for name in x]
)
def test_every_setting_of_a_part_matters(kind, name):
  call, changes = CALLS[kind]
  part = kind()
  changed = dataclasses.replace(part, **{name: changes[name]})
  before, after = (np.asarray(call(x), np.float64) for x in (part, changed))
  assert np.abs(before - after).max() > 1e-4
  assert part != changed and hash(part) == hash(kind())


def test_token_rewards_of_a_critic():
  at_end = np.asarray(advantages.at_last_token(REWARDS + INPUTS.penalty.sum(-1), MASK))
  token_rewards = at_end - np.asarray(INPUTS.penalty)
  # They add up to the penalized reward of the completion.
  np.testing.assert_allclose(token_rewards.sum(-1), REWARDS, rtol=1e-5, atol=1e-6)
  expected = returns.gae(token_rewards, INPUTS.values, MASK, 1.0, 0.95)
  np.testing.assert_allclose(
    parts.GAE(whiten=False)(INPUTS), expected, rtol=1e-5, atol=1e-6
  )
  np.testing.assert_allclose(
    parts.LambdaReturn(lam=1.0)(INPUTS),
    returns.discounted_returns(token_rewards, MASK),
    rtol=1e-5,
    atol=1e-6,
  )
  adaptive = returns.gae(
    token_rewards, INPUTS.values, MASK, 1.0, returns.length_adaptive_lambda(LENGTHS, 0.5)
  )
  result = parts.LengthAdaptiveGAE(alpha=0.5)(INPUTS)
  np.testing.assert_allclose(
    result, advantages.whiten(adaptive, MASK), rtol=1e-5, atol=1e-6
  )


def test_return_to_go_takes_the_penalty_once():
  raw = REWARDS + INPUTS.penalty.sum(-1)
  expected = advantages.reinforce_pp(raw, INPUTS.penalty, MASK, kl_coef=1.0)
  np.testing.assert_allclose(parts.ReturnToGo()(INPUTS), expected, rtol=1e-5, atol=1e-6)


def test_baselines():
  np.testing.assert_allclose(
    parts.MovingAverageBaseline()(INPUTS), REWARDS - 0.3, rtol=1e-6
  )
  moving = algorithms.MovingAverage(rate=0.5, initial=0.2)
  batch = types.SimpleNamespace(rewards=REWARDS, valid=FEEDBACK.valid)
  updated = moving.update(moving.init(), StepSignals(batch, *[None] * 4))
  assert updated == pytest.approx(0.1 + 0.5 * float(REWARDS.mean()))
  # The penalty is a return to go, of which the first token has all.
  greedy = np.asarray(parts.GreedyBaseline()(INPUTS))
  expected = REWARDS - FEEDBACK.greedy_rewards[:, None]
  np.testing.assert_allclose(greedy[..., 0], expected, rtol=1e-5, atol=1e-6)
  first = greedy[..., 0] + INPUTS.penalty[..., 0]  # what is left after the first token
  more = np.asarray(MASK)[..., 1]
  np.testing.assert_allclose(greedy[..., 1][more], first[more], rtol=1e-5, atol=1e-6)


def test_correction_parts_call_their_op():
  pairs = [
    (parts.TruncatedWeights(1.2), correction.truncated(LIVE, ROLLOUT.logp, 1.2)),
    (parts.IcePop(0.8, 2.0), correction.icepop(LIVE, ROLLOUT.logp, 0.8, 2.0)),
  ]
  for part, expected in pairs:
    np.testing.assert_allclose(correct(part), jnp.where(MASK, expected, 0), rtol=1e-6)


def test_overlong_takes_a_fifth_of_the_limit():
  expected = REWARDS + 0.5 * shaping.overlong(LENGTHS, 6, 1)
  np.testing.assert_allclose(shape(parts.Overlong(coef=0.5)), expected, rtol=1e-6)


@pytest.mark.parametrize(
  ("part", "field", "message"),
  [
    (parts.GreedyBaseline(), "greedy_rewards", "greedy_baseline is False"),
    (parts.MovingAverageBaseline(), "baseline", "MovingAverageBaseline needs a baseline"),
    (parts.DecoupledNormalized(), "components", "components is .."),
    (parts.ProcessNormalized(), "step_rewards", "step_reward is None"),
    (
      parts.GAE(),
      "values",
      "GAE needs the critic.s values and the algorithm has no critic",
    ),
    (parts.LambdaReturn(), "values", "LambdaReturn needs the critic"),
  ],
)
def test_a_part_names_what_it_needs(part, field, message):
  with pytest.raises(ValueError, match=message):
    part(INPUTS.replace(**{field: None}))


def test_filters():
  np.testing.assert_array_equal(filters.finished(None, None, ROLLOUT), ROLLOUT.finished)
  rewards = np.array([[1, 1, 1], [1, 0, 1], [0, 1, np.nan], [0, np.nan, 0], [5, 6, 7]])
  valid = np.isfinite(rewards)
  valid[4] = False
  informative = filters.informative(rewards, valid)
  np.testing.assert_array_equal(informative, [False, True, True, False, False])
