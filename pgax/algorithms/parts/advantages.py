"""Parts that compute advantages, or the targets of the critic."""

import dataclasses
from typing import Literal

import jax.numpy as jnp

from pgax.errors import check_one_of
from pgax.ops import advantages, returns
from pgax.ops.masking import lengths
from pgax.types import AdvantageInputs, Array

__all__ = [
  "GAE",
  "BatchMean",
  "DecoupledNormalized",
  "GreedyBaseline",
  "GroupCentered",
  "GroupNormalized",
  "LambdaReturn",
  "LeaveOneOut",
  "LengthAdaptiveGAE",
  "LengthWeighted",
  "MovingAverageBaseline",
  "NoBaseline",
  "ProcessNormalized",
  "RelativeToMean",
  "ReturnToGo",
]


def _check_group(inputs: AdvantageInputs, part: object) -> None:
  """Rejects a group of one, whose advantages are all 0, so that nothing is learned."""
  group = inputs.rewards.shape[-1]
  if group < 2:
    raise ValueError(
      f"group size is {group}; {type(part).__name__} compares the completions of a prompt "
      "with each other and needs at least 2"
    )


@dataclasses.dataclass(frozen=True)
class NoBaseline:
  """REINFORCE without a baseline: the reward itself."""

  def __call__(self, inputs: AdvantageInputs) -> Array:
    return inputs.rewards


@dataclasses.dataclass(frozen=True)
class BatchMean:
  """REINFORCE: the reward minus the mean of the batch; see `advantages.batch_mean`."""

  def __call__(self, inputs: AdvantageInputs) -> Array:
    return advantages.batch_mean(inputs.rewards, inputs.valid)


@dataclasses.dataclass(frozen=True)
class LeaveOneOut:
  """RLOO: the reward minus the mean of the others in its group; see `advantages.rloo`."""

  def __call__(self, inputs: AdvantageInputs) -> Array:
    return advantages.rloo(inputs.rewards, inputs.valid)


@dataclasses.dataclass(frozen=True)
class GroupNormalized:
  """GRPO: rewards normalized within their group; see `advantages.grpo`.

  Attributes:
    ddof: 0 for the population's standard deviation, 1 for the sample's.
    eps: constant added to the standard deviation, in units of reward.
    scale: `group` divides by the deviation of the group, `batch` by that of the batch; see
      `advantages.batch_scaled`.
  """

  ddof: int = 0
  eps: float = 1e-6
  scale: Literal["group", "batch"] = "group"

  def __post_init__(self):
    check_one_of(self, ("group", "batch"), "scale")

  def __call__(self, inputs: AdvantageInputs) -> Array:
    _check_group(inputs, self)
    normalized = advantages.grpo if self.scale == "group" else advantages.batch_scaled
    return normalized(inputs.rewards, inputs.valid, self.ddof, self.eps)


@dataclasses.dataclass(frozen=True)
class DecoupledNormalized:
  """GDPO: each component of the reward normalized in its group; see `advantages.gdpo`.

  The components are the scores that `Algorithm.components` names. The reward of the
  completion is ignored, except for a KL penalty in it, which is subtracted.

  Attributes:
    weights: weight of each component; empty for equal weights.
    eps: constant added to the standard deviation.
  """

  weights: tuple[float, ...] = ()
  eps: float = 1e-6

  def __call__(self, inputs: AdvantageInputs) -> Array:
    _check_group(inputs, self)
    if inputs.components is None:
      raise ValueError(
        "DecoupledNormalized needs components of the reward and components is (); name "
        "scores of the reward function"
      )
    normalized = advantages.gdpo(inputs.components, inputs.valid, self.weights, self.eps)
    return normalized - jnp.sum(inputs.penalty, axis=-1)


@dataclasses.dataclass(frozen=True)
class GroupCentered:
  """Dr. GRPO: the reward minus the mean of its group; see `advantages.dr_grpo`."""

  def __call__(self, inputs: AdvantageInputs) -> Array:
    _check_group(inputs, self)
    return advantages.dr_grpo(inputs.rewards, inputs.valid)


@dataclasses.dataclass(frozen=True)
class LengthWeighted:
  """OPO: the reward minus the length-weighted mean of its group; see `advantages.opo`."""

  def __call__(self, inputs: AdvantageInputs) -> Array:
    _check_group(inputs, self)
    return advantages.opo(inputs.rewards, lengths(inputs.action_mask), inputs.valid)


@dataclasses.dataclass(frozen=True)
class RelativeToMean:
  """MaxRL: the centered reward, divided by its group's mean; see `advantages.maxrl`."""

  def __call__(self, inputs: AdvantageInputs) -> Array:
    _check_group(inputs, self)
    return advantages.maxrl(inputs.rewards, inputs.valid)


@dataclasses.dataclass(frozen=True)
class MovingAverageBaseline:
  """REINFORCE: the reward minus a moving average; see `advantages.moving_average`.

  The average is `Algorithm.baseline`, which `MovingAverage.update` keeps up to date.
  """

  def __call__(self, inputs: AdvantageInputs) -> Array:
    if inputs.baseline is None:
      raise ValueError(
        "MovingAverageBaseline needs a baseline and baseline is None; give the algorithm "
        "a MovingAverage as its baseline"
      )
    # `MovingAverage.update` updates the baseline, at its own rate.
    return advantages.moving_average(inputs.rewards, inputs.baseline, 0.0, inputs.valid)[0]


@dataclasses.dataclass(frozen=True)
class GreedyBaseline:
  """ReMax: the reward minus that of the greedy completion; see `advantages.remax`.

  A KL penalty in the reward is subtracted as a return to go.
  """

  def __call__(self, inputs: AdvantageInputs) -> Array:
    if inputs.greedy_rewards is None:
      raise ValueError(
        "GreedyBaseline needs the rewards of greedy completions and greedy_baseline is "
        "False; set it to True in the algorithm"
      )
    difference = advantages.remax(_without_penalty(inputs), inputs.greedy_rewards)
    to_go = returns.discounted_returns(inputs.penalty, inputs.action_mask)
    return difference[..., None] - to_go


@dataclasses.dataclass(frozen=True)
class ProcessNormalized:
  """GRPO with process supervision: step rewards normalized within their group.

  See `advantages.grpo_process`. A KL penalty in the reward is subtracted as a return to go.
  The reward of the completion is ignored.

  Attributes:
    ddof: 0 for the population's standard deviation, 1 for the sample's.
    eps: constant added to the standard deviation, in units of reward.
  """

  ddof: int = 0
  eps: float = 1e-6

  def __call__(self, inputs: AdvantageInputs) -> Array:
    _check_group(inputs, self)
    if inputs.step_rewards is None:
      raise ValueError(
        "ProcessNormalized needs step rewards and step_reward is None; give a function "
        "that rewards steps"
      )
    mask = inputs.action_mask
    ends = jnp.broadcast_to(jnp.arange(mask.shape[-1]), mask.shape)
    normalized = advantages.grpo_process(
      inputs.step_rewards, inputs.step_ends, ends, mask, self.ddof, self.eps
    )
    return normalized - returns.discounted_returns(inputs.penalty, mask)


@dataclasses.dataclass(frozen=True)
class ReturnToGo:
  """REINFORCE++: returns whitened over the global batch; see `advantages.reinforce_pp`.

  Attributes:
    group_baseline: whether to subtract the mean of the group from the reward first.
    discount: discount of future rewards.
  """

  group_baseline: bool = False
  discount: float = 1.0

  def __call__(self, inputs: AdvantageInputs) -> Array:
    if self.group_baseline:
      _check_group(inputs, self)
    return advantages.reinforce_pp(
      _without_penalty(inputs),
      inputs.penalty,
      inputs.action_mask,
      inputs.valid,
      kl_coef=1.0,  # `penalty` includes its coefficient
      group_baseline=self.group_baseline,
      discount=self.discount,
    )


def _without_penalty(inputs: AdvantageInputs) -> Array:
  """Rewards before the KL penalty, `[N, G]`."""
  return inputs.rewards + jnp.sum(inputs.penalty, axis=-1)


def _token_rewards(inputs: AdvantageInputs) -> Array:
  """Minus the penalty of each action, plus the reward at the last one, `[N, G, T]`."""
  at_end = advantages.at_last_token(_without_penalty(inputs), inputs.action_mask)
  return at_end - inputs.penalty


def _gae(
  inputs: AdvantageInputs, discount: float, lam: Array | float, part: object
) -> Array:
  """GAE of token rewards, with a value after truncated completions if there is one."""
  if inputs.values is None:
    raise ValueError(
      f"{type(part).__name__} needs the critic's values and the algorithm has no critic; "
      "give it a CriticSpec"
    )
  end_values = 0.0 if inputs.end_values is None else inputs.end_values
  return returns.gae(
    _token_rewards(inputs), inputs.values, inputs.action_mask, discount, lam, end_values
  )


def _whitened(x: Array, inputs: AdvantageInputs, whiten: bool) -> Array:
  return advantages.whiten(x, inputs.action_mask) if whiten else x


@dataclasses.dataclass(frozen=True)
class GAE:
  """PPO: generalized advantage estimation over token rewards; see `returns.gae`.

  Attributes:
    discount: discount of future rewards.
    lam: lambda, in [0, 1].
    whiten: whether to normalize over the global batch.
  """

  discount: float = 1.0
  lam: float = 0.95
  whiten: bool = True

  def __call__(self, inputs: AdvantageInputs) -> Array:
    return _whitened(_gae(inputs, self.discount, self.lam, self), inputs, self.whiten)


@dataclasses.dataclass(frozen=True)
class LengthAdaptiveGAE:
  """VAPO: GAE whose lambda grows with the length; see `returns.length_adaptive_lambda`.

  Attributes:
    discount: discount of future rewards.
    alpha: rate at which lambda grows with the length, positive.
    whiten: whether to normalize over the global batch.
  """

  discount: float = 1.0
  alpha: float = 0.05
  whiten: bool = True

  def __call__(self, inputs: AdvantageInputs) -> Array:
    lam = returns.length_adaptive_lambda(lengths(inputs.action_mask), self.alpha)
    return _whitened(_gae(inputs, self.discount, lam, self), inputs, self.whiten)


@dataclasses.dataclass(frozen=True)
class LambdaReturn:
  """PPO: the critic's target `A + V`; see `returns.lambda_returns`.

  Attributes:
    discount: discount of future rewards.
    lam: lambda, in [0, 1]; 1 for the Monte Carlo return.
  """

  discount: float = 1.0
  lam: float = 0.95

  def __call__(self, inputs: AdvantageInputs) -> Array:
    estimate = _gae(inputs, self.discount, self.lam, self)
    return returns.lambda_returns(estimate, inputs.values, inputs.action_mask)
