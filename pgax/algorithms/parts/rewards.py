"""Parts that shape rewards before anything is computed from them."""

import dataclasses

from pgax.ops import advantages, shaping
from pgax.ops.masking import lengths
from pgax.types import Array, Rollout


@dataclasses.dataclass(frozen=True)
class MissingEOS:
  """A penalty for completions cut at the length limit; see `shaping.missing_eos`."""

  penalty: float = 1.0
  replace: bool = False

  def __call__(self, rewards: Array, valid: Array, rollout: Rollout) -> Array:
    del valid
    return shaping.missing_eos(rewards, rollout.finished, self.penalty, self.replace)


@dataclasses.dataclass(frozen=True)
class Overlong:
  """A penalty that grows towards the length limit; see `shaping.overlong`.

  Attributes:
    buffer: tokens before the limit over which it grows; None takes a fifth of the limit,
      as DAPO does.
    coef: what a completion at the limit loses, in units of reward.
  """

  buffer: int | None = None
  coef: float = 1.0

  def __call__(self, rewards: Array, valid: Array, rollout: Rollout) -> Array:
    del valid
    limit = rollout.mask.shape[-1]
    buffer = max(limit // 5, 1) if self.buffer is None else self.buffer
    return rewards + self.coef * shaping.overlong(lengths(rollout.mask), limit, buffer)


@dataclasses.dataclass(frozen=True)
class Normalised:
  """Rewards of a known range, brought to [0, 1]; see `shaping.normalise`."""

  low: float
  high: float

  def __call__(self, rewards: Array, valid: Array, rollout: Rollout) -> Array:
    del valid, rollout
    return shaping.normalise(rewards, self.low, self.high)


@dataclasses.dataclass(frozen=True)
class Bounded:
  """Rewards, clipped; see `shaping.clip`."""

  low: float
  high: float

  def __call__(self, rewards: Array, valid: Array, rollout: Rollout) -> Array:
    del valid, rollout
    return shaping.clip(rewards, self.low, self.high)


@dataclasses.dataclass(frozen=True)
class Whitened:
  """Rewards, standardised over the batch; see `advantages.whiten`."""

  shift_mean: bool = True

  def __call__(self, rewards: Array, valid: Array, rollout: Rollout) -> Array:
    del rollout
    return advantages.whiten(rewards, valid, self.shift_mean)
