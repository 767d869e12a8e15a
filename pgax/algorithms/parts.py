"""The ops as parts of an algorithm: frozen, so that equal settings share one jit trace.

Each part fits one of the protocols `AdvantageFn`, `SurrogateFn` and `AggregationFn` of
`pgax.types`, holds its settings as fields, and calls the op of the same meaning. A module
function of the right signature is a part as well.
"""

import dataclasses

from pgax.ops import advantages, aggregation, surrogates
from pgax.ops.masking import lengths
from pgax.types import Array, Batch, Scored, SurrogateLoss


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
class PolicyGradient:
  """`-A * logp`; see `surrogates.policy_gradient`."""

  def __call__(self, logp: Array, batch: Batch) -> SurrogateLoss:
    return surrogates.policy_gradient(logp, batch.advantages)


@dataclasses.dataclass(frozen=True)
class Clipped:
  """PPO's clipped surrogate; see `surrogates.clipped`."""

  clip_low: float = 0.2
  clip_high: float = 0.2
  dual_clip: float | None = None

  def __call__(self, logp: Array, batch: Batch) -> SurrogateLoss:
    return surrogates.clipped(
      logp,
      batch.old_logp,
      batch.advantages,
      self.clip_low,
      self.clip_high,
      self.dual_clip,
    )


@dataclasses.dataclass(frozen=True)
class SequenceClipped:
  """The clip on one ratio for a whole sequence; see `surrogates.gspo`."""

  clip_low: float = 3e-4
  clip_high: float = 4e-4

  def __call__(self, logp: Array, batch: Batch) -> SurrogateLoss:
    return surrogates.gspo(
      logp, batch.old_logp, batch.advantages, batch.mask, self.clip_low, self.clip_high
    )


@dataclasses.dataclass(frozen=True)
class GeometricMean:
  """The geometric mean of bounded token ratios; see `surrogates.gmpo`."""

  clip: float = 0.4

  def __call__(self, logp: Array, batch: Batch) -> SurrogateLoss:
    return surrogates.gmpo(logp, batch.old_logp, batch.advantages, batch.mask, self.clip)


@dataclasses.dataclass(frozen=True)
class ClippedWeight:
  """The policy gradient under a clipped importance weight; see `surrogates.cispo`."""

  clip_low: float = 1.0
  clip_high: float = 0.28

  def __call__(self, logp: Array, batch: Batch) -> SurrogateLoss:
    return surrogates.cispo(
      logp, batch.old_logp, batch.advantages, self.clip_low, self.clip_high
    )


@dataclasses.dataclass(frozen=True)
class SoftGate:
  """A sigmoid in the place of the clip; see `surrogates.sapo`."""

  tau_pos: float = 1.0
  tau_neg: float = 1.05

  def __call__(self, logp: Array, batch: Batch) -> SurrogateLoss:
    return surrogates.sapo(
      logp, batch.old_logp, batch.advantages, self.tau_pos, self.tau_neg
    )


@dataclasses.dataclass(frozen=True)
class TrustedTokens:
  """The surrogate without tokens that have moved too far; see `surrogates.dppo`."""

  delta: float = 0.2

  def __call__(self, logp: Array, batch: Batch) -> SurrogateLoss:
    return surrogates.dppo(logp, batch.old_logp, batch.advantages, self.delta)


@dataclasses.dataclass(frozen=True)
class FixedLength:
  """Token weight `1 / (max_length * sequences)`; see `aggregation.fixed_length`.

  Attributes:
    max_length: the constant, in tokens; None takes the room that the rollout has, which
      is the sampler's token limit.
  """

  max_length: int | None = None

  def __call__(self, mask: Array) -> Array:
    limit = mask.shape[-1] if self.max_length is None else self.max_length
    return aggregation.fixed_length(mask, limit)
