"""Parts that weigh tokens: by the mask alone, or to make up for the sampler."""

import dataclasses

from pgax.ops import aggregation, correction
from pgax.types import Array


@dataclasses.dataclass(frozen=True)
class FixedLength:
  """Token weight `1 / (max_length * sequences)`; see `aggregation.fixed_length`.

  Attributes:
    max_length: the constant, in tokens; None takes the room that the rollout has, which
      is the sampler's token limit.
  """

  max_length: float | None = None

  def __call__(self, mask: Array) -> Array:
    limit = mask.shape[-1] if self.max_length is None else self.max_length
    return aggregation.fixed_length(mask, limit)


@dataclasses.dataclass(frozen=True)
class Truncated:
  """Importance weights of tokens, bounded from above; see `correction.truncated`."""

  cap: float = 2.0

  def __call__(self, old_logp: Array, rollout_logp: Array, mask: Array) -> Array:
    del mask
    return correction.truncated(old_logp, rollout_logp, self.cap)


@dataclasses.dataclass(frozen=True)
class IcePop:
  """Importance weights of tokens, 0 where they are extreme; see `correction.icepop`."""

  low: float = 0.5
  high: float = 5.0

  def __call__(self, old_logp: Array, rollout_logp: Array, mask: Array) -> Array:
    del mask
    return correction.icepop(old_logp, rollout_logp, self.low, self.high)


@dataclasses.dataclass(frozen=True)
class SequenceTruncated:
  """One importance weight for a whole completion; see `correction.sequence`."""

  cap: float = 2.0

  def __call__(self, old_logp: Array, rollout_logp: Array, mask: Array) -> Array:
    return correction.sequence(old_logp, rollout_logp, mask, self.cap)
