"""Parts that train the critic: outputs of its head to values, and to a loss."""

import dataclasses

import jax

from pgax.ops import values
from pgax.types import Array, Batch


@dataclasses.dataclass(frozen=True)
class SquaredError:
  """The head tells the value itself; see `values.value_loss`."""

  clip: float | None = 0.2

  def values(self, outputs: Array) -> Array:
    """The outputs as they are."""
    return outputs

  def __call__(self, outputs: Array, batch: Batch) -> Array:
    return values.value_loss(outputs, batch.old_values, batch.targets, self.clip)


@dataclasses.dataclass(frozen=True)
class CrossEntropy:
  """The head tells the logit of a return in [0, 1]; see `values.binary_value_loss`."""

  def values(self, outputs: Array) -> Array:
    """The sigmoid of the outputs."""
    return jax.nn.sigmoid(outputs)

  def __call__(self, outputs: Array, batch: Batch) -> Array:
    return values.binary_value_loss(outputs, batch.targets)
