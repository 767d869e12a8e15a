"""The ablations: for each, runs by their names, which differ in one choice."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from experiments.ablations.choice import choose
from experiments.ablations.job import long_and_short_sums, make_run
from pgax.algorithms import Algorithm, KLPenalty, MovingAverage, parts
from pgax.ops import aggregation, kl
from pgax.training import RunConfig, with_settings

Runs = Mapping[str, RunConfig]

_BASELINES = {
  "none": parts.NoBaseline(),
  "batch": parts.BatchMean(),
  "moving average": parts.MovingAverageBaseline(),
  "group": parts.GroupCentered(),
  "leave one out": parts.LeaveOneOut(),
  "group and std": parts.GroupNormalized(),
}
_SCALES = {
  "no std": parts.GroupCentered(),
  "std of the group": parts.GroupNormalized(),
  "std of the batch": parts.GroupNormalized(scale="batch"),
}
_AGGREGATIONS = {
  "sequence_mean": aggregation.sequence_mean,
  "token_mean": aggregation.token_mean,
  "fixed_length": parts.FixedLength(),
  "sequence_sum": aggregation.sequence_sum,
}
_SURROGATES = {
  "clip": parts.Clipped(),
  "no clip": parts.Unclipped(),
  "clipped weight": parts.ClippedWeight(),
}
_ADVANTAGES = tuple(dict.fromkeys((*_BASELINES.values(), *_SCALES.values())))
# The algorithm that each ablation changes in one respect: the reward minus the mean of its
# group, equal weights of all tokens, and one optimizer step. With every part a choice of
# all that are compared, most ablations are runs of one program.
PLAIN = Algorithm(
  advantage=choose(parts.GroupCentered(), _ADVANTAGES),
  surrogate=choose(parts.Clipped(), tuple(_SURROGATES.values())),
  aggregation=choose(aggregation.token_mean, tuple(_AGGREGATIONS.values())),
  baseline=MovingAverage(),
)
_SCHEDULES = ((2, 2), (4, 4))  # epochs and minibatches of off-policy steps
_RATES = (1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3)
_FAST = 3e-4  # learning rate of off-policy steps, at which a clip makes a difference
_COEFS = (0.01, 0.04, 0.5)
_TARGET = 1.0  # nats per completion, of the adaptive coefficient
_GROUPS = (2, 8, 32)


def baseline() -> Runs:
  """Baselines subtracted from the reward."""
  return _with_parts("advantage", _BASELINES, make_run(PLAIN))


def length() -> Runs:
  """The weight of a token in a long completion and in a short one."""
  return _with_parts("aggregation", _AGGREGATIONS, make_run(PLAIN, long_and_short_sums))


def std() -> Runs:
  """The centered reward, divided by a standard deviation or not."""
  return _with_parts("advantage", _SCALES, make_run(PLAIN))


def off_policy() -> Runs:
  """Several optimizer steps per rollout, with and without bounds of the ratio."""
  run = _with_rate(make_run(PLAIN), _FAST)
  runs = {"1x1": run}
  for epochs, minibatches in _SCHEDULES:
    several = _with_algorithm(run, epochs=epochs, minibatches=minibatches)
    for name, changed in _with_parts("surrogate", _SURROGATES, several).items():
      runs[f"{epochs}x{minibatches} {name}"] = changed
  return runs


def learning_rate() -> Runs:
  """The learning rate of the policy."""
  run = make_run(PLAIN)
  return {f"{rate:g}": _with_rate(run, rate) for rate in _RATES}


def kl_penalty() -> Runs:
  """Estimator, place and coefficient of the KL penalty."""
  run, in_loss = make_run(PLAIN), (kl.k2, kl.k3)
  # A coefficient of 0 is the run without a penalty, with the divergence as a metric.
  coefs = {"none": KLPenalty(choose(kl.k3, in_loss), kl.FixedController(0.0), "loss")}
  for coef in _COEFS:
    controller = kl.FixedController(coef)
    coefs[f"k1 in the reward, {coef:g}"] = KLPenalty(kl.k1, controller, "reward")
    for estimator in in_loss:
      coefs[f"{estimator.__name__} in the loss, {coef:g}"] = KLPenalty(
        choose(estimator, in_loss), controller, "loss"
      )
  adaptive = kl.AdaptiveController(0.04, _TARGET, horizon=500)
  coefs["k1 in the reward, adaptive"] = KLPenalty(kl.k1, adaptive, "reward")
  return {name: _with_algorithm(run, kl=coefs[name]) for name in sorted(coefs, key=_order)}


def _order(name: str) -> tuple[bool, str]:
  return name != "none", name


def group_size() -> Runs:
  """Completions per prompt, at the same number of completions."""
  run, runs = make_run(PLAIN), {}
  for group in _GROUPS:
    prompts = run.sampling.completions_per_step // group
    sizes = {"sampling.prompts_per_step": prompts, "sampling.group_size": group}
    runs[f"{prompts} prompts, groups of {group}"] = with_settings(run, sizes)
  return runs


def _with_parts(field: str, options: Mapping[str, Callable], run: RunConfig) -> Runs:
  """The run with each of the parts that a field of its algorithm can choose from."""
  choice = getattr(run.algorithm, field)
  return {
    name: _with_algorithm(run, **{field: choose(part, choice.parts)})
    for name, part in options.items()
  }


def _with_rate(run: RunConfig, rate: float) -> RunConfig:
  return with_settings(run, {"optimizer.learning_rate": rate})


def _with_algorithm(run: RunConfig, **changes: Any) -> RunConfig:
  return with_settings(run, {f"algorithm.{name}": part for name, part in changes.items()})


@dataclasses.dataclass(frozen=True)
class Ablation:
  """A choice and how it is reported.

  Attributes:
    title: title of the picture.
    runs: makes the runs by their names.
    metric: metric of a step that is reported beside the accuracy.
    label: the metric's name in table and picture.
  """

  title: str
  runs: Callable[[], Runs]
  metric: str
  label: str


ABLATIONS = {
  "baseline": Ablation("Baselines", baseline, "grad_norm", "norm of the gradient"),
  "length": Ablation("Weights of tokens", length, "length/mean", "tokens of a completion"),
  "std": Ablation(
    "Standard deviation of the rewards", std, "entropy", "entropy of a token, nats"
  ),
  "off_policy": Ablation(
    "Epochs x minibatches", off_policy, "ratio/clip_fraction", "fraction of clipped tokens"
  ),
  "learning_rate": Ablation(
    "Learning rates", learning_rate, "entropy", "entropy of a token, nats"
  ),
  "kl": Ablation(
    "KL penalties", kl_penalty, "kl/ref_completion", "KL to the reference, nats"
  ),
  "group_size": Ablation(
    "Group sizes at 64 completions",
    group_size,
    "groups/zero_variance",
    "groups of equal rewards",
  ),
}
