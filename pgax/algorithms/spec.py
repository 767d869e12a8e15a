"""An algorithm is a value: a frozen dataclass of small functions."""

import dataclasses
import math
from typing import Any

from pgax.algorithms.reference import reads_reference
from pgax.algorithms.stateful import (
  EntropyBonus,
  KLPenalty,
  MovingAverage,
  StatefulPart,
  StepSignals,
)
from pgax.errors import check_at_least, check_at_most, check_each
from pgax.ops import kl
from pgax.ops.precision import is_concrete
from pgax.types import (
  AdvantageFn,
  AggregationFn,
  CompletionFilterFn,
  SamplerCorrectionFn,
  ShapingFn,
  SurrogateFn,
  TokenFilterFn,
  ValueLossFn,
)

_MAX_PASSES = 1000  # far beyond any use; the order of every pass is an array


@dataclasses.dataclass(frozen=True)
class CriticSpec:
  """Training of the critic.

  Attributes:
    target: computes the target of every value, `[N, G, T]`.
    loss: turns outputs of the critic's head into values, and into a per-token loss.
    coef: coefficient of the loss. The critic has its own parameters and optimizer, so this
      does not trade off against the policy's loss; it scales the gradient before clipping.
    pretraining_steps: number of steps at the start of a run in which only the critic is
      trained, on rollouts of the frozen policy.
    bootstrap_truncated: whether the critic's value after the last token of a truncated
      completion is added to what follows that token; otherwise nothing follows it, as
      after EOS.
  """

  target: AdvantageFn
  loss: ValueLossFn
  coef: float = 0.1
  pretraining_steps: int = 0
  bootstrap_truncated: bool = False

  def __post_init__(self):
    if not 0 < self.coef < math.inf or self.pretraining_steps < 0:
      raise ValueError(
        f"coef is {self.coef} and pretraining_steps is {self.pretraining_steps}; coef must "
        "be positive and finite, pretraining_steps at least 0"
      )


@dataclasses.dataclass(frozen=True)
class DynamicSampling:
  """DAPO: drops groups whose rewards are all equal, and samples further prompts.

  Attributes:
    max_batches: maximum number of prompt batches that a step may sample. Rows of the
      batch that are still empty are then ignored in the update.
  """

  max_batches: int = 3

  def __post_init__(self):
    check_at_least(self, 2, "max_batches")


@dataclasses.dataclass(frozen=True)
class PositiveNLL:
  """VAPO: the negative log-likelihood of correct completions, added to the loss.

  Attributes:
    coef: coefficient of the mean over their tokens.
    threshold: a completion is correct if its unshaped reward exceeds this.
  """

  coef: float = 0.1
  threshold: float = 0.0

  def __post_init__(self):
    check_each(self, ["coef"], lambda x: 0 < x < math.inf, "positive and finite")


@dataclasses.dataclass(frozen=True)
class Algorithm:
  """A policy-gradient algorithm, made of its parts.

  Equal algorithms hash equal and share one jit trace, so parts are module functions or
  frozen dataclasses (see `pgax.algorithms.parts`), never lambdas or `functools.partial`.
  To make a new algorithm, replace a part: `dataclasses.replace(grpo(), advantage=...)`.

  Attributes:
    advantage: computes advantages.
    surrogate: computes a per-token loss from log-probabilities and the batch.
    aggregation: computes the weight of every token from the loss mask of the global batch.
    kl: penalty for the divergence from an anchor; None for no penalty.
    critic: training of a value function; None for algorithms without one.
    baseline: moving average of the reward, kept from step to step; None for no baseline.
    greedy_baseline: whether each prompt is also decoded greedily, for the reward of that
      completion.
    shaping: functions applied to the rewards, in order, before any other computation.
    dynamic_sampling: drops groups without signal and samples further prompts; None trains
      on all groups.
    completion_filter: selects the completions that take part in the update; the others
      still count in the statistics of their group. None selects all.
    sampler_correction: computes token weights that correct for a sampler whose
      probabilities differ from the trainer's; None for no correction.
    nll_loss: negative log-likelihood of correct completions in the loss; None for none.
    entropy: entropy bonus in the loss; None for none.
    token_filter: selects the tokens whose surrogate counts; other terms of the loss and the
      weights are unchanged. None selects all.
    components: names of the scores of the reward function that the advantage reads one by
      one; a completion without one of them is not valid.
    target_kl: an update ends before the first optimizer step at which the mean `k3` of its
      tokens from the old policy exceeds this, nats per token; infinity never ends it early.
    epochs: number of passes over a rollout.
    minibatches: number of optimizer steps in a pass, each on a part of the prompts.
  """

  advantage: AdvantageFn
  surrogate: SurrogateFn
  aggregation: AggregationFn
  kl: KLPenalty | None = None
  critic: CriticSpec | None = None
  baseline: MovingAverage | None = None
  greedy_baseline: bool = False
  shaping: tuple[ShapingFn, ...] = ()
  dynamic_sampling: DynamicSampling | None = None
  completion_filter: CompletionFilterFn | None = None
  sampler_correction: SamplerCorrectionFn | None = None
  nll_loss: PositiveNLL | None = None
  entropy: EntropyBonus | None = None
  token_filter: TokenFilterFn | None = None
  components: tuple[str, ...] = ()
  target_kl: float = math.inf
  epochs: int = 1
  minibatches: int = 1

  def __post_init__(self):
    check_each(self, ["epochs", "minibatches"], lambda x: x >= 1, "at least 1")
    check_at_most(self, _MAX_PASSES, "epochs", "minibatches")
    self._check_target_kl()
    if isinstance(self.components, str) or len({*self.components}) < len(self.components):
      raise ValueError(
        f"components is {self.components!r}; it must be a tuple of different names"
      )
    if not all(map(callable, self.shaping)):
      raise ValueError(f"shaping is {self.shaping!r}; it must be a tuple of functions")
    if self.greedy_baseline and self.shaping:
      raise ValueError(
        f"greedy_baseline is True and shaping is {self.shaping}; rewards of greedy "
        "completions are not shaped, so the baseline would be in other units. Shape the "
        "rewards in the reward function"
      )

  def _check_target_kl(self) -> None:
    if not self.target_kl > 0:
      raise ValueError(
        f"target_kl is {self.target_kl}; it must be positive (infinity never stops)"
      )
    if not self.stops_early:
      return
    if self.epochs * self.minibatches == 1:
      raise ValueError(
        f"target_kl is {self.target_kl} and there is one optimizer step per rollout, which "
        "starts from the old policy; raise epochs or minibatches"
      )
    if (
      self.kl is not None
      and self.kl.anchor == "old"
      and isinstance(self.kl.controller, kl.AdaptiveController)
    ):
      raise ValueError(
        f"target_kl is {self.target_kl} and the KL penalty adapts to the same divergence, "
        "which would be that of an unfinished update; use one of the two"
      )

  @property
  def stateful_parts(self) -> dict[str, StatefulPart]:
    """The parts with a state that is kept from step to step, by their fields."""
    parts = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
    return {name: part for name, part in parts.items() if hasattr(part, "init")}

  def init(self) -> dict[str, Any]:
    """Returns the initial states of the stateful parts, by their fields."""
    return {name: part.init() for name, part in self.stateful_parts.items()}

  def update(self, states: dict[str, Any], signals: StepSignals) -> dict[str, Any]:
    """Returns the states of the stateful parts after a step."""
    return {
      name: part.update(states[name], signals) for name, part in self.stateful_parts.items()
    }

  @property
  def bootstraps(self) -> bool:
    """True if the critic's value follows the last token of truncated completions."""
    return self.critic is not None and self.critic.bootstrap_truncated

  @property
  def stops_early(self) -> bool:
    """True if an update may end before its last optimizer step."""
    return not is_concrete(self.target_kl) or self.target_kl < math.inf

  @property
  def compares_completions(self) -> bool:
    """True if the surrogate needs all completions of a group at once."""
    return getattr(self.surrogate, "compares_completions", True)

  @property
  def needs_reference(self) -> bool:
    """True if the loss or the reward depends on the reference policy."""
    anchored = self.kl is not None and self.kl.anchor == "reference"
    return anchored or reads_reference(self.surrogate)

  @property
  def needs_old_logp(self) -> bool:
    """True if log-probabilities have to be computed before the update.

    A separate pass is unnecessary if there is one optimizer step per rollout and nothing
    compares the policy with the reference or the sampler before it, nor reads its entropy:
    the forward pass of the loss then computes them.
    """
    in_reward = self.kl is not None and self.kl.placement == "reward"
    steps = self.epochs * self.minibatches
    filters = self.sampler_correction is not None or self.token_filter is not None
    return steps > 1 or in_reward or filters
