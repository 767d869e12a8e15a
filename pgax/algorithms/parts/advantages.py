"""Parts that turn a scored rollout into advantages, or into targets of the critic."""

import dataclasses

import jax.numpy as jnp

from pgax.ops import advantages, returns
from pgax.ops.masking import lengths
from pgax.types import Array, Scored


def _needs_group(scored: Scored, part: object) -> None:
  """Refuses a group of one, in which every advantage is 0 and nothing would be learned."""
  group = scored.rewards.shape[-1]
  if group < 2:
    raise ValueError(
      f"group size is {group}; {type(part).__name__} compares the completions of a prompt "
      "with each other and needs at least 2"
    )


@dataclasses.dataclass(frozen=True)
class BatchMean:
  """Reward less the mean of the batch; see `advantages.batch_mean`."""

  def __call__(self, scored: Scored) -> Array:
    return advantages.batch_mean(scored.rewards, scored.valid)


@dataclasses.dataclass(frozen=True)
class LeaveOneOut:
  """Reward less the mean of the others in its group; see `advantages.rloo`."""

  def __call__(self, scored: Scored) -> Array:
    return advantages.rloo(scored.rewards, scored.valid)


@dataclasses.dataclass(frozen=True)
class GroupStandardised:
  """Reward standardised in its group; see `advantages.grpo`."""

  ddof: int = 0
  eps: float = 1e-6

  def __call__(self, scored: Scored) -> Array:
    _needs_group(scored, self)
    return advantages.grpo(scored.rewards, scored.valid, self.ddof, self.eps)


@dataclasses.dataclass(frozen=True)
class GroupCentred:
  """Reward less the mean of its group; see `advantages.dr_grpo`."""

  def __call__(self, scored: Scored) -> Array:
    _needs_group(scored, self)
    return advantages.dr_grpo(scored.rewards, scored.valid)


@dataclasses.dataclass(frozen=True)
class LengthWeighted:
  """Reward less the length-weighted mean of its group; see `advantages.opo`."""

  def __call__(self, scored: Scored) -> Array:
    _needs_group(scored, self)
    return advantages.opo(scored.rewards, lengths(scored.mask), scored.valid)


@dataclasses.dataclass(frozen=True)
class RelativeToMean:
  """Reward less the mean of its group, over that mean; see `advantages.maxrl`."""

  def __call__(self, scored: Scored) -> Array:
    _needs_group(scored, self)
    return advantages.maxrl(scored.rewards, scored.valid)


@dataclasses.dataclass(frozen=True)
class AboveBaseline:
  """Reward less the baseline that the algorithm keeps; see `advantages.moving_average`."""

  def __call__(self, scored: Scored) -> Array:
    if scored.baseline is None:
      raise ValueError("AboveBaseline needs a baseline; baseline of the algorithm is None")
    # The rate is that at which `MovingAverage.update` moves the baseline: not here.
    return advantages.moving_average(scored.rewards, scored.baseline, 0.0, scored.valid)[0]


@dataclasses.dataclass(frozen=True)
class AboveGreedy:
  """Reward less that of the greedy completion; see `advantages.remax`."""

  def __call__(self, scored: Scored) -> Array:
    if scored.greedy_rewards is None:
      raise ValueError(
        "AboveGreedy needs the rewards of greedy completions; greedy_baseline is False, "
        "set it to True in the algorithm"
      )
    return advantages.remax(scored.rewards, scored.greedy_rewards)


@dataclasses.dataclass(frozen=True)
class StepsStandardised:
  """Rewards of steps standardised in their group; see `advantages.grpo_process`.

  A KL penalty in the reward is taken off as what is still to come of it. The reward of the
  whole completion plays no part.
  """

  ddof: int = 0
  eps: float = 1e-6

  def __call__(self, scored: Scored) -> Array:
    _needs_group(scored, self)
    if scored.step_rewards is None:
      raise ValueError(
        "StepsStandardised needs rewards of steps; step_reward is None, give a function "
        "that rewards steps"
      )
    ends = jnp.broadcast_to(jnp.arange(scored.mask.shape[-1]), scored.mask.shape)
    found = advantages.grpo_process(
      scored.step_rewards, scored.step_ends, ends, scored.mask, self.ddof, self.eps
    )
    return found - returns.discounted_returns(scored.penalty, scored.mask)


@dataclasses.dataclass(frozen=True)
class ReturnToGo:
  """Return to go, whitened over the global batch; see `advantages.reinforce_pp`.

  Attributes:
    group_baseline: whether to take the mean of the group off the reward first.
    discount: of the return to go.
  """

  group_baseline: bool = False
  discount: float = 1.0

  def __call__(self, scored: Scored) -> Array:
    if self.group_baseline:
      _needs_group(scored, self)
    return advantages.reinforce_pp(
      _unpenalised(scored),
      scored.penalty,
      scored.mask,
      scored.valid,
      kl_coef=1.0,  # the penalty has its coefficient in it
      group_baseline=self.group_baseline,
      discount=self.discount,
    )


def _unpenalised(scored: Scored) -> Array:
  """Rewards without the KL penalty, `[N, G]`."""
  return scored.rewards + jnp.sum(scored.penalty, axis=-1)


def _estimate(scored: Scored, discount: float, lam: Array | float, part: object) -> Array:
  """GAE of the token rewards: minus the penalty of each, and the reward at the last."""
  if scored.values is None:
    raise ValueError(f"{type(part).__name__} needs values; the algorithm has no critic")
  rewards = advantages.at_last_token(_unpenalised(scored), scored.mask) - scored.penalty
  return returns.gae(rewards, scored.values, scored.mask, discount, lam)


def _whitened(found: Array, scored: Scored, whiten: bool) -> Array:
  return advantages.whiten(found, scored.mask) if whiten else found


@dataclasses.dataclass(frozen=True)
class GAE:
  """Generalised advantage estimation over token rewards; see `returns.gae`.

  Attributes:
    discount: of rewards to come.
    lam: the trace.
    whiten: whether to standardise over the global batch.
  """

  discount: float = 1.0
  lam: float = 0.95
  whiten: bool = True

  def __call__(self, scored: Scored) -> Array:
    return _whitened(_estimate(scored, self.discount, self.lam, self), scored, self.whiten)


@dataclasses.dataclass(frozen=True)
class LengthAdaptiveGAE:
  """GAE whose trace grows with the length; see `returns.length_adaptive_lambda`.

  Attributes:
    discount: of rewards to come.
    alpha: how fast the trace grows.
    whiten: whether to standardise over the global batch.
  """

  discount: float = 1.0
  alpha: float = 0.05
  whiten: bool = True

  def __call__(self, scored: Scored) -> Array:
    lam = returns.length_adaptive_lambda(lengths(scored.mask), self.alpha)
    return _whitened(_estimate(scored, self.discount, lam, self), scored, self.whiten)


@dataclasses.dataclass(frozen=True)
class LambdaReturn:
  """The target of a critic, `A + V`; see `returns.lambda_returns`.

  Attributes:
    discount: of rewards to come.
    lam: the trace; 1 for the plain return to go.
  """

  discount: float = 1.0
  lam: float = 0.95

  def __call__(self, scored: Scored) -> Array:
    found = _estimate(scored, self.discount, self.lam, self)
    return returns.lambda_returns(found, scored.values, scored.mask)
