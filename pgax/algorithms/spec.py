"""An algorithm is a value: a frozen dataclass of small functions."""

import dataclasses
import math
from typing import Literal

import jax.numpy as jnp

from pgax.ops import advantages, kl
from pgax.types import (
  AdvantageFn,
  AggregationFn,
  Array,
  CorrectionFn,
  DivergenceFn,
  KeepFn,
  ShapingFn,
  SurrogateFn,
  ValueLossFn,
)


def _allowed(name: str, value: object, *options: object) -> None:
  if value not in options:
    raise ValueError(f"{name} is {value!r}; allowed are {' and '.join(map(repr, options))}")


@dataclasses.dataclass(frozen=True)
class KLPenalty:
  """How far the policy may go from an anchor, and where that is charged.

  Attributes:
    estimator: per-token estimate of KL(policy || anchor) from log-probabilities.
    controller: gives the coefficient, and moves it where it is adaptive or annealed.
    placement: `reward` subtracts `coef * sum_t estimator_t` from a completion's reward;
      `loss` adds `coef * estimator_t` to the per-token loss.
    anchor: `reference` is the frozen reference policy; `old` is the policy that the update
      starts from, which only makes sense in the loss.
    corrected: whether to weigh the estimate by the importance ratio, for samples of an
      older policy; gradients then flow through the ratio too (see `kl.k3_corrected`).
  """

  estimator: DivergenceFn
  controller: kl.FixedController | kl.AdaptiveController | kl.AnnealedController
  placement: Literal["reward", "loss"]
  anchor: Literal["reference", "old"] = "reference"
  corrected: bool = False

  def __post_init__(self):
    _allowed("placement", self.placement, "reward", "loss")
    _allowed("anchor", self.anchor, "reference", "old")
    if self.placement == "reward" and (self.anchor == "old" or self.corrected):
      raise ValueError(
        f"anchor is {self.anchor!r} and corrected is {self.corrected} with placement "
        "'reward'; there the policy is still the old one, so allowed are 'reference' and "
        "False"
      )
    if self.placement == "loss" and self.estimator is kl.k1 and not self.corrected:
      raise ValueError(
        "estimator is k1 with placement 'loss' and corrected False; its expected gradient "
        "is zero there. Take k2 or k3, or corrected=True"
      )


@dataclasses.dataclass(frozen=True)
class ValueLearning:
  """A critic: what it learns, how, and whether it learns first.

  Attributes:
    target: scored rollout to the target of every value, `[N, G, T]`.
    loss: outputs of the critic's head to values, and to a per-token loss.
    coef: factor of the loss. The critic has its own parameters and optimizer: this does
      not trade off against the policy's loss, it scales the gradient that is then clipped.
    pretraining: number of steps at the start of a run in which the critic alone learns,
      from rollouts of the frozen policy.
  """

  target: AdvantageFn
  loss: ValueLossFn
  coef: float = 0.1
  pretraining: int = 0

  def __post_init__(self):
    if not 0 < self.coef < math.inf or self.pretraining < 0:
      raise ValueError(
        f"coef is {self.coef} and pretraining is {self.pretraining}; coef must be positive "
        "and finite, pretraining at least 0"
      )


@dataclasses.dataclass(frozen=True)
class DynamicSampling:
  """Groups whose rewards are all equal are dropped, and more are sampled (DAPO).

  Attributes:
    max_batches: how many batches of prompts a step may sample. What is still missing then
      stays empty: those rows of the batch take no part in the update.
  """

  max_batches: int = 3

  def __post_init__(self):
    if self.max_batches < 2:
      raise ValueError(f"max_batches is {self.max_batches}; it must be at least 2")


@dataclasses.dataclass(frozen=True)
class PositiveExamples:
  """Negative log-likelihood of the completions that were right, in the loss (VAPO).

  Attributes:
    coef: factor of their mean over tokens.
    threshold: a completion was right if its reward, before any shaping, is above this.
  """

  coef: float = 0.1
  threshold: float = 0.0

  def __post_init__(self):
    if not 0 < self.coef < math.inf:
      raise ValueError(f"coef is {self.coef}; it must be positive and finite")


@dataclasses.dataclass(frozen=True)
class MovingAverage:
  """A baseline kept from step to step; `parts.AboveBaseline` subtracts it.

  `b <- (1 - rate) * b + rate * mean(R)`, from `initial` on.

  Attributes:
    rate: how fast it follows the mean reward, in [0, 1].
    initial: the baseline of the first step.
  """

  rate: float = 0.1
  initial: float = 0.0

  def __post_init__(self):
    if not 0 <= self.rate <= 1 or not math.isfinite(self.initial):
      raise ValueError(
        f"rate is {self.rate} and initial is {self.initial}; rate must be in [0, 1] and "
        "initial finite"
      )

  def init(self) -> Array:
    """The state to begin with: the baseline."""
    return jnp.float32(self.initial)

  def update(self, state: Array, rewards: Array, valid: Array) -> Array:
    """The state after a batch of rewards `[N, G]`, of which some are valid."""
    return advantages.moving_average(rewards, state, self.rate, valid)[1]


@dataclasses.dataclass(frozen=True)
class Algorithm:
  """A policy-gradient algorithm, made of its parts.

  Equal algorithms hash equal and share one jit trace, so parts are module functions or
  frozen dataclasses (see `pgax.algorithms.parts`), never lambdas or `functools.partial`.
  To make a new algorithm, replace a part: `dataclasses.replace(grpo(), advantage=...)`.

  Attributes:
    advantage: scored rollout to advantages.
    surrogate: live log-probabilities and batch to a per-token loss.
    aggregation: mask of the global batch to the weight of every token.
    kl: penalty for leaving an anchor, usually the reference policy; None for none.
    critic: a value function, and how it learns; None for none.
    baseline: a baseline kept from step to step; None for none.
    greedy_baseline: whether each prompt is also decoded greedily, for the reward of that.
    shaping: changes rewards one after another, before anything is computed from them.
    refill: drops groups without signal and samples on; None trains on all.
    keep: which completions take part in the update; all others still count in the
      statistics of their group. None for all.
    correction: weight of every token that makes up for a sampler whose probabilities are
      not the trainer's; None for none.
    imitation: likelihood of right completions in the loss; None for none.
    epochs: passes over a rollout.
    minibatches: optimizer steps in a pass, each on its own part of the prompts.
  """

  advantage: AdvantageFn
  surrogate: SurrogateFn
  aggregation: AggregationFn
  kl: KLPenalty | None = None
  critic: ValueLearning | None = None
  baseline: MovingAverage | None = None
  greedy_baseline: bool = False
  shaping: tuple[ShapingFn, ...] = ()
  refill: DynamicSampling | None = None
  keep: KeepFn | None = None
  correction: CorrectionFn | None = None
  imitation: PositiveExamples | None = None
  epochs: int = 1
  minibatches: int = 1

  def __post_init__(self):
    if self.epochs < 1 or self.minibatches < 1:
      raise ValueError(
        f"epochs is {self.epochs} and minibatches is {self.minibatches}; both must be at "
        "least 1"
      )
    if not all(map(callable, self.shaping)):
      raise ValueError(f"shaping is {self.shaping!r}; it must be a tuple of functions")
    if self.greedy_baseline and self.shaping:
      raise ValueError(
        f"greedy_baseline is True and shaping is {self.shaping}; rewards of greedy "
        "completions are not shaped, so the baseline would be in other units. Shape them "
        "in the reward function"
      )
