"""Parts that train the critic: outputs of its head to values, and to a loss."""

import dataclasses

import jax

from pgax.ops import values
from pgax.types import Array, Batch

__all__ = ["CrossEntropy", "SquaredError"]


@dataclasses.dataclass(frozen=True)
class SquaredError:
  """PPO: clipped squared error of a head that outputs values; see `values.value_loss`.

  Attributes:
    clip: largest change of a value in one update, in units of reward; None for no limit.
  """

  clip: float | None = 0.2

  def values(self, outputs: Array) -> Array:
    """The outputs themselves."""
    return outputs

  def __call__(self, outputs: Array, batch: Batch) -> Array:
    return values.value_loss(outputs, batch.old_values, batch.targets, self.clip)


@dataclasses.dataclass(frozen=True)
class CrossEntropy:
  """Cross-entropy of a head that outputs logits; see `values.binary_value_loss`.

  For returns in [0, 1].
  """

  def values(self, outputs: Array) -> Array:
    """The sigmoid of the outputs."""
    return jax.nn.sigmoid(outputs)

  def __call__(self, outputs: Array, batch: Batch) -> Array:
    return values.binary_value_loss(outputs, batch.targets)
