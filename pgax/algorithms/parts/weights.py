"""Parts that weigh or select tokens: by the mask, the sampler or the entropy."""

import dataclasses

from pgax.errors import check_each
from pgax.ops import aggregation, correction, entropy
from pgax.types import Array

__all__ = ["FixedLength", "IcePop", "TopEntropy", "TruncatedWeights"]


@dataclasses.dataclass(frozen=True)
class FixedLength:
  """Dr. GRPO: token weight `1 / (max_length * sequences)`; see `aggregation.fixed_length`.

  Attributes:
    max_length: the constant, in tokens; None for the length limit of the rollout.
  """

  max_length: float | None = None

  def __call__(self, mask: Array) -> Array:
    limit = mask.shape[-1] if self.max_length is None else self.max_length
    return aggregation.fixed_length(mask, limit)


@dataclasses.dataclass(frozen=True)
class TopEntropy:
  """Selects the tokens of highest entropy in the batch; see `entropy.top_fraction`.

  Attributes:
    fraction: fraction of tokens to select, above 0 and at most 1.
  """

  fraction: float = 0.2

  def __post_init__(self):
    check_each(self, ["fraction"], lambda x: 0 < x <= 1, "above 0 and at most 1")

  def __call__(self, entropies: Array, mask: Array) -> Array:
    return entropy.top_fraction(entropies, mask, self.fraction)


@dataclasses.dataclass(frozen=True)
class TruncatedWeights:
  """TIS: importance weights of tokens, truncated from above; see `correction.truncated`.

  Attributes:
    cap: the largest weight, positive.
  """

  cap: float = 2.0

  def __call__(self, old_logp: Array, sample_logp: Array, mask: Array) -> Array:
    del mask
    return correction.truncated(old_logp, sample_logp, self.cap)


@dataclasses.dataclass(frozen=True)
class IcePop:
  """IcePop: importance weights of tokens, 0 out of bounds; see `correction.icepop`.

  Attributes:
    low: the smallest weight that is not set to 0.
    high: the largest weight that is not set to 0.
  """

  low: float = 0.5
  high: float = 5.0

  def __call__(self, old_logp: Array, sample_logp: Array, mask: Array) -> Array:
    del mask
    return correction.icepop(old_logp, sample_logp, self.low, self.high)
