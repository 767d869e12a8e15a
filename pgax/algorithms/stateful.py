"""Parts of an algorithm with a state that is kept from step to step.

Such a part owns its state, as a transformation of optax does: `init` makes it and `update`
computes the next one. Nothing else knows what it holds. `Algorithm.init` and
`Algorithm.update` collect the states of all parts that have these methods.
"""

import dataclasses
import math
from typing import Any, Literal, NamedTuple, Protocol

import jax.numpy as jnp

from pgax.errors import check_one_of
from pgax.ops import advantages, kl
from pgax.ops.entropy import AdaptiveController
from pgax.ops.finite import all_finite, take_if
from pgax.ops.masking import masked_sum
from pgax.types import Array, Batch, DivergenceFn


class StepSignals(NamedTuple):
  """The inputs of stateful parts after a step.

  Attributes:
    batch: the training batch.
    old_logp: `[N, G, T]` log-probabilities before the update, in nats.
    entropy: mean entropy of the trained tokens, in nats.
    kl_old: sum over the tokens of the last pass of `k3(old_logp, logp)`.
    completions: number of completions with a trained token.
    policy_learns: whether the policy was updated, and not the critic alone.
  """

  batch: Batch
  old_logp: Array
  entropy: Array
  kl_old: Array
  completions: Array
  policy_learns: bool = True


class StatefulPart(Protocol):
  """A part with a state, which is a pytree of arrays."""

  def init(self) -> Any:
    """Returns the state before the first step."""

  def update(self, state: Any, signals: StepSignals) -> Any:
    """Returns the state after a step."""


class _Controlled:
  """A part whose coefficient and state are those of its `controller`."""

  def init(self) -> Any:
    """Returns the state before the first step."""
    return self.controller.init()

  def value(self, state: Any) -> Array:
    """Returns the coefficient."""
    return self.controller.value(state)


@dataclasses.dataclass(frozen=True)
class KLPenalty(_Controlled):
  """A penalty for the divergence of the policy from an anchor.

  Attributes:
    estimator: per-token estimate of KL(policy || anchor) from log-probabilities.
    controller: gives the coefficient, which may be fixed, adaptive or annealed.
    placement: `reward` subtracts `coef * sum_t estimator_t` from a completion's reward;
      `loss` adds `coef * estimator_t` to the per-token loss.
    anchor: `reference` is the frozen reference policy; `old` is the policy that the update
      starts from, and requires placement `loss`.
    importance_weighted: whether to multiply the estimate by the importance ratio, for
      samples of an older policy. Gradients then flow through the ratio too; see
      `kl.k3_importance_weighted`.
  """

  estimator: DivergenceFn
  controller: kl.FixedController | kl.AdaptiveController | kl.AnnealedController
  placement: Literal["reward", "loss"]
  anchor: Literal["reference", "old"] = "reference"
  importance_weighted: bool = False

  def __post_init__(self):
    check_one_of(self, ("reward", "loss"), "placement")
    check_one_of(self, ("reference", "old"), "anchor")
    if self.placement == "reward" and (self.anchor == "old" or self.importance_weighted):
      raise ValueError(
        f"anchor is {self.anchor!r} and importance_weighted is {self.importance_weighted} "
        "with placement 'reward', where the policy is still the old one; allowed are "
        "'reference' and False"
      )
    if (
      self.placement == "loss" and self.estimator is kl.k1 and not self.importance_weighted
    ):
      raise ValueError(
        "estimator is k1 with placement 'loss' and importance_weighted False, and its "
        "expected gradient is zero there; use k2 or k3, or importance_weighted=True"
      )

  def update(self, state: Any, signals: StepSignals) -> Any:
    """Returns the state after a step, by the mean divergence of its completions."""
    if not signals.policy_learns:  # a frozen policy gives a controller no signal
      return state
    batch, divergence = signals.batch, signals.kl_old
    if self.anchor == "reference":
      divergence = masked_sum(kl.k1(signals.old_logp, batch.ref_logp), batch.loss_mask)
    mean = divergence / jnp.maximum(signals.completions, 1)
    updated = self.controller.update(state, mean, signals.completions)
    return take_if(all_finite(mean), updated, state)


@dataclasses.dataclass(frozen=True)
class EntropyBonus(_Controlled):
  """An entropy bonus: `-coef * H_t` in the per-token loss, with the weights of the tokens.

  `H_t` is the exact entropy of the policy before the token. Its gradient is that of the
  entropy at the states that were sampled, not of how often the policy reaches them.

  Attributes:
    controller: gives the coefficient, which may be fixed or keep the entropy at a target.
  """

  controller: kl.FixedController | AdaptiveController

  def update(self, state: Any, signals: StepSignals) -> Any:
    """Returns the state after a step, by the mean entropy of its tokens."""
    if not signals.policy_learns:
      return state
    updated = self.controller.update(state, signals.entropy, signals.completions)
    known = all_finite(signals.entropy) & (signals.completions > 0)
    return take_if(known, updated, state)


@dataclasses.dataclass(frozen=True)
class MovingAverage:
  """A baseline kept from step to step; `parts.MovingAverageBaseline` subtracts it.

  `b <- (1 - rate) * b + rate * mean(R)`, starting at `initial`.

  Attributes:
    rate: weight of the newest mean reward, in [0, 1].
    initial: baseline of the first step.
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
    """Returns the initial state: the baseline."""
    return jnp.float32(self.initial)

  def update(self, state: Array, signals: StepSignals) -> Array:
    """Returns the state after a step, by its valid rewards."""
    batch = signals.batch
    return advantages.moving_average(batch.rewards, state, self.rate, batch.valid)[1]
