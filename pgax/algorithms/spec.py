"""An algorithm is a value: a frozen dataclass of small functions."""

import dataclasses
from typing import Literal

from pgax.ops.kl import AdaptiveController, FixedController
from pgax.types import AdvantageFn, AggregationFn, DivergenceFn, SurrogateFn


@dataclasses.dataclass(frozen=True)
class KLPenalty:
  """How far the policy may go from the reference, and where that is charged.

  Attributes:
    estimator: per-token estimate of KL(policy || reference) from log-probabilities.
    controller: gives the coefficient, and moves it where it is adaptive.
    placement: `reward` subtracts `coef * sum_t estimator_t` from a completion's reward;
      `loss` adds `coef * estimator_t` to the per-token loss.
  """

  estimator: DivergenceFn
  controller: FixedController | AdaptiveController
  placement: Literal["reward", "loss"]

  def __post_init__(self):
    if self.placement not in ("reward", "loss"):
      raise ValueError(f"placement is {self.placement!r}; allowed are 'reward' and 'loss'")


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
    kl: penalty for leaving the reference policy; None for none.
    epochs: passes over a rollout.
    minibatches: optimizer steps in a pass, each on its own part of the prompts.
  """

  advantage: AdvantageFn
  surrogate: SurrogateFn
  aggregation: AggregationFn
  kl: KLPenalty | None = None
  epochs: int = 1
  minibatches: int = 1

  def __post_init__(self):
    if self.epochs < 1 or self.minibatches < 1:
      raise ValueError(
        f"epochs is {self.epochs} and minibatches is {self.minibatches}; both must be at "
        "least 1"
      )
