"""Parts that shape rewards before anything is computed from them."""

import dataclasses

from pgax.ops import shaping
from pgax.ops.masking import lengths
from pgax.types import Array, Rollout

__all__ = ["MissingEOS", "Overlong"]


@dataclasses.dataclass(frozen=True)
class MissingEOS:
  """Penalizes completions cut at the length limit; see `shaping.missing_eos`.

  Attributes:
    penalty: the penalty, in units of reward.
    replace: whether the penalty replaces the reward, instead of being subtracted from it.
  """

  penalty: float = 1.0
  replace: bool = False

  def __call__(self, rewards: Array, valid: Array, rollout: Rollout) -> Array:
    del valid
    return shaping.missing_eos(rewards, rollout.finished, self.penalty, self.replace)


@dataclasses.dataclass(frozen=True)
class Overlong:
  """DAPO: a penalty that grows toward the length limit; see `shaping.overlong`.

  The length counts all tokens of the completion, as the limit does.

  Attributes:
    buffer: number of tokens before the limit over which the penalty grows; None for a
      fifth of the limit, as in DAPO.
    coef: penalty at the limit, in units of reward.
  """

  buffer: int | None = None
  coef: float = 1.0

  def __call__(self, rewards: Array, valid: Array, rollout: Rollout) -> Array:
    del valid
    mask = rollout.token_mask
    limit = mask.shape[-1]
    buffer = max(limit // 5, 1) if self.buffer is None else self.buffer
    return rewards + self.coef * shaping.overlong(lengths(mask), limit, buffer)
