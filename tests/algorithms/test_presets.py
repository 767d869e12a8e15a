"""Presets: their parts, and that every setting reaches its part."""

import dataclasses
import inspect

import pytest

from pgax import aggregation, algorithms, kl
from pgax.algorithms import (
  Algorithm,
  CriticSpec,
  DynamicSampling,
  KLPenalty,
  MovingAverage,
  PositiveNLL,
  filters,
  parts,
)

PRESETS = algorithms.presets.ALL
IN_REWARD = KLPenalty(kl.k1, kl.FixedController(0.05), "reward")
CLIPPED, HIGHER = parts.Clipped(0.2, 0.2), parts.Clipped(0.2, 0.28)
GROUP = parts.GroupNormalized(ddof=0, eps=1e-6)
# A value for every argument of every preset that differs from its default.
OTHERS = {
  "alpha": 0.1,
  "anneal_steps": 7,
  "baseline": "none",
  "beta": 0.3,
  "bootstrap_truncated": True,
  "clip": 0.3,
  "clip_high": 0.35,
  "clip_low": 0.15,
  "components": ("accuracy", "length"),
  "ddof": 1,
  "delta": 0.3,
  "drop_truncated": True,
  "epochs": 3,
  "eps": 1e-4,
  "eta": 0.3,
  "final_step_size": 0.3,
  "form": "joint",
  "imitation_coef": 0.3,
  "importance": "token",
  "kl_coef": 0.3,
  "lam": 0.5,
  "leave_one_out": True,
  "max_batches": 5,
  "max_length": 9,
  "minibatches": 5,
  "normalize_constant": 9.0,
  "overlong_buffer": 7,
  "overlong_coef": 0.5,
  "pretraining": 3,
  "rate": 0.2,
  "scale_rewards": "batch",
  "step_size": 0.7,
  "tau": 0.3,
  "tau_neg": 3.0,
  "tau_pos": 2.0,
  "threshold": 0.5,
  "value_clip": 0.3,
  "value_coef": 0.3,
  "weights": (1.0, 0.5),
}


# Settings that choose a part, which holds the value or not.
ADDED = ("drop_truncated", "rate", "clip", "baseline", "leave_one_out")


def critic(lam, pretraining=0):
  return CriticSpec(parts.LambdaReturn(1.0, lam), parts.SquaredError(0.2), 0.1, pretraining)


# The presets of the formula sheet, part by part, defaults included.
EXPECTED = {
  algorithms.reinforce: Algorithm(
    parts.BatchMean(), parts.PolicyGradient(), aggregation.sequence_sum
  ),
  algorithms.rloo: Algorithm(
    parts.LeaveOneOut(), parts.PolicyGradient(), aggregation.sequence_sum, IN_REWARD
  ),
  algorithms.remax: Algorithm(
    parts.GreedyBaseline(),
    parts.PolicyGradient(),
    aggregation.sequence_sum,
    IN_REWARD,
    greedy_baseline=True,
  ),
  algorithms.reinforce_pp: Algorithm(
    parts.ReturnToGo(group_baseline=False, discount=1.0),
    CLIPPED,
    aggregation.token_mean,
    KLPenalty(kl.k1, kl.FixedController(0.01), "reward"),
  ),
  algorithms.reinforce_pp_baseline: Algorithm(
    parts.ReturnToGo(group_baseline=True, discount=1.0),
    CLIPPED,
    aggregation.token_mean,
    KLPenalty(kl.k2, kl.FixedController(1e-5), "loss"),
  ),
  algorithms.opo: Algorithm(
    parts.LengthWeighted(), parts.PolicyGradient(), aggregation.sequence_sum
  ),
  algorithms.maxrl: Algorithm(
    parts.RelativeToMean(), parts.PolicyGradient(), aggregation.sequence_sum
  ),
  algorithms.ppo: Algorithm(
    parts.GAE(1.0, 0.95, whiten=True),
    CLIPPED,
    aggregation.token_mean,
    IN_REWARD,
    critic(0.95),
    epochs=4,
  ),
  algorithms.vc_ppo: Algorithm(
    parts.GAE(1.0, 0.95, whiten=True),
    CLIPPED,
    aggregation.token_mean,
    IN_REWARD,
    critic(1.0, pretraining=10),
    epochs=4,
  ),
  algorithms.vapo: Algorithm(
    parts.LengthAdaptiveGAE(1.0, 0.05, whiten=True),
    HIGHER,
    aggregation.token_mean,
    critic=critic(1.0, pretraining=50),
    nll_loss=PositiveNLL(0.1),
    minibatches=16,
  ),
  algorithms.grpo: Algorithm(
    GROUP,
    CLIPPED,
    aggregation.sequence_mean,
    KLPenalty(kl.k3, kl.FixedController(0.04), "loss"),
  ),
  algorithms.grpo_process: Algorithm(
    parts.ProcessNormalized(ddof=0, eps=1e-6),
    CLIPPED,
    aggregation.sequence_mean,
    KLPenalty(kl.k3, kl.FixedController(0.04), "loss"),
  ),
  algorithms.gdpo: Algorithm(
    parts.DecoupledNormalized((), eps=1e-6),
    CLIPPED,
    aggregation.sequence_mean,
    KLPenalty(kl.k3, kl.FixedController(0.04), "loss"),
    components=("accuracy", "format"),
  ),
  algorithms.dr_grpo: Algorithm(parts.GroupCentered(), CLIPPED, parts.FixedLength(None)),
  algorithms.dapo: Algorithm(
    GROUP,
    HIGHER,
    aggregation.token_mean,
    shaping=(parts.Overlong(None, 1.0),),
    dynamic_sampling=DynamicSampling(3),
  ),
  algorithms.gspo: Algorithm(
    GROUP, parts.SequenceClipped(3e-4, 4e-4), aggregation.sequence_mean
  ),
  algorithms.gmpo: Algorithm(GROUP, parts.GeometricMean(0.4), aggregation.sequence_mean),
  algorithms.cispo: Algorithm(
    GROUP, parts.ClippedWeight(1.0, 0.28), aggregation.token_mean
  ),
  algorithms.sapo: Algorithm(
    GROUP, parts.SigmoidGate(1.0, 1.05), aggregation.sequence_mean
  ),
  algorithms.dppo: Algorithm(
    parts.GroupCentered(),
    parts.ProbabilityClipped(0.15, "sampler"),
    parts.FixedLength(None),
  ),
  algorithms.mdpo: Algorithm(
    parts.GroupCentered(),
    parts.Unclipped(),
    aggregation.sequence_mean,
    KLPenalty(
      kl.k3, kl.AnnealedController(1.0, 0.1, 100), "loss", "old", importance_weighted=True
    ),
    epochs=4,
  ),
  algorithms.mdpo_kimi: Algorithm(
    parts.GroupCentered(), parts.MirrorDescent(0.1), aggregation.sequence_mean, epochs=4
  ),
  algorithms.tpo: Algorithm(
    parts.GroupNormalized(ddof=0, eps=0.0),
    parts.TargetMatching(1.0),
    aggregation.sequence_mean,
    epochs=4,
  ),
  algorithms.a_lol: Algorithm(
    parts.GroupCentered(),
    parts.ReferenceWeighted(0.9, "sequence"),
    aggregation.sequence_sum,
  ),
  algorithms.p3o: Algorithm(
    parts.GroupCentered(),
    parts.Pairwise(0.2, "separate"),
    aggregation.sequence_mean,
    IN_REWARD,
  ),
  algorithms.copg: Algorithm(
    parts.GroupCentered(), parts.Contrastive(0.05), aggregation.sequence_mean
  ),
  algorithms.expert_iteration: Algorithm(
    parts.UnitAdvantage(),
    parts.PolicyGradient(),
    aggregation.token_mean,
    completion_filter=parts.RewardAbove(0.0),
  ),
}


def test_every_preset_is_tested():
  assert set(EXPECTED) == set(PRESETS)
  assert [preset.__name__ for preset in PRESETS] == [p.__name__ for p in EXPECTED]


@pytest.mark.parametrize("preset", PRESETS)
def test_parts(preset):
  assert preset() == EXPECTED[preset]


def leaves(value):
  """Every setting of an algorithm by its path, nested ones included."""
  if dataclasses.is_dataclass(value):
    fields = {field.name: vars(value)[field.name] for field in dataclasses.fields(value)}
  elif isinstance(value, tuple):
    fields = dict(enumerate(value))
  else:
    return {(): value}
  result = {(name, *path): x for name, v in fields.items() for path, x in leaves(v).items()}
  return result | {("kind",): type(value).__name__}


SETTINGS = [(p, name) for p in PRESETS for name in inspect.signature(p).parameters]


@pytest.mark.parametrize(("preset", "name"), SETTINGS)
def test_every_setting_reaches_its_part(preset, name):
  value = OTHERS[name]
  before, after = leaves(preset()), leaves(preset(**{name: value}))
  changed = {k: v for k, v in after.items() if before.get(k, "absent") != v}
  added = name in ADDED
  values = value if isinstance(value, tuple) else (value,)
  assert {*values} & {*changed.values()} or added, changed
  assert len({place[0] for place in changed}) <= 2  # of a critic, its target goes along


def test_settings_that_add_a_part():
  assert algorithms.dapo(drop_truncated=True).completion_filter is filters.finished
  moving = algorithms.reinforce(rate=0.2)
  assert moving.baseline == MovingAverage(0.2)
  assert moving.advantage == parts.MovingAverageBaseline()
  assert algorithms.rloo(clip=0.1).surrogate == parts.Clipped(0.1, 0.1)
  assert algorithms.reinforce_pp(clip=0.1).surrogate == parts.Clipped(0.1, 0.1)
  assert algorithms.reinforce(baseline="none").advantage == parts.NoBaseline()
  assert algorithms.grpo(scale_rewards="none").advantage == parts.GroupCentered()
  for preset in (algorithms.mdpo, algorithms.mdpo_kimi):
    assert preset(leave_one_out=True).advantage == parts.LeaveOneOut()
  assert algorithms.vapo(imitation_coef=0.0).nll_loss is None
  assert algorithms.dapo(overlong_coef=0.0).shaping == ()
  assert algorithms.dapo(max_batches=1).dynamic_sampling is None
  assert algorithms.a_lol(kl_coef=0.1).kl.placement == "loss"


@pytest.mark.parametrize("preset", [algorithms.grpo, algorithms.rloo, algorithms.a_lol])
def test_no_coefficient_is_no_penalty(preset):
  assert preset(kl_coef=0.0).kl is None
  for bad in (-0.1, float("nan"), float("inf")):
    with pytest.raises(ValueError, match=f"kl_coef is {bad}"):
      preset(kl_coef=bad)


@pytest.mark.parametrize("preset", PRESETS)
def test_equal_values_hash_equal_and_can_be_replaced(preset):
  assert preset() == preset() and hash(preset()) == hash(preset())
  changed = dataclasses.replace(preset(), aggregation=parts.FixedLength(99))
  assert changed != preset() and changed.surrogate == preset().surrogate
  with pytest.raises(dataclasses.FrozenInstanceError):
    preset().epochs = 3


@pytest.mark.parametrize(
  ("make", "message"),
  [
    (lambda: algorithms.grpo(epochs=0), "epochs is 0"),
    (
      lambda: dataclasses.replace(algorithms.grpo(), shaping=("x",)),
      "shaping is .'x',.; it must be a tuple of functions",
    ),
    (lambda: algorithms.expert_iteration(float("nan")), "threshold is nan"),
    (
      lambda: algorithms.expert_iteration(normalize_constant=-1.0),
      r"normalize_constant is -1\.0; it must be 0 or positive",
    ),
    (lambda: algorithms.grpo(minibatches=-1), "minibatches is -1"),
    (
      lambda: KLPenalty(kl.k1, kl.FixedController(0.1), "gradient"),
      "placement is 'gradient'; it must be one of reward, loss",
    ),
    (
      lambda: KLPenalty(kl.k1, kl.FixedController(0.1), "loss", "new"),
      "anchor is 'new'; it must be one of reference, old",
    ),
    (
      lambda: KLPenalty(kl.k1, kl.FixedController(0.1), "reward", "old"),
      "anchor is 'old' and importance_weighted is False with placement 'reward'",
    ),
    (lambda: algorithms.ppo(value_coef=0.0), r"coef is 0\.0 .*must be positive"),
    (lambda: algorithms.vc_ppo(pretraining=-1), "pretraining_steps is -1"),
    (lambda: algorithms.vapo(imitation_coef=-0.1), r"coef is -0\.1; it must be positive"),
    (lambda: algorithms.dapo(max_batches=0), "max_batches is 0; it must be at least 2"),
    (
      lambda: dataclasses.replace(algorithms.remax(), shaping=(parts.MissingEOS(),)),
      "greedy_baseline is True and shaping is",
    ),
    (
      lambda: algorithms.reinforce(rate=0.1, baseline="none"),
      "baseline is 'none' and rate is 0.1",
    ),
    (
      lambda: algorithms.grpo(scale_rewards="all"),
      "scale_rewards is 'all'; allowed",
    ),
    (lambda: algorithms.gdpo(weights=(1.0,)), "weights is .1.0,.; there must be"),
    (lambda: algorithms.gdpo(("a", "a")), "must be a tuple of different names"),
    (lambda: parts.TopEntropy(0.0), r"fraction is 0\.0"),
    (
      lambda: dataclasses.replace(algorithms.grpo(epochs=2), target_kl=0.0),
      r"target_kl is 0\.0; it must be positive",
    ),
    (
      lambda: dataclasses.replace(algorithms.grpo(), target_kl=0.1),
      "there is one optimizer step per rollout",
    ),
    (
      lambda: dataclasses.replace(
        algorithms.mdpo(),
        target_kl=0.1,
        kl=KLPenalty(kl.k2, kl.AdaptiveController(0.1, 1.0, 9), "loss", "old"),
      ),
      "the KL penalty adapts to the same divergence",
    ),
    (lambda: algorithms.reinforce(rate=1.5), r"rate is 1\.5"),
    (lambda: algorithms.mdpo(final_step_size=0.0), r"end is 0\.0"),
  ],
)
def test_bad_values(make, message):
  with pytest.raises(ValueError, match=message):
    make()
