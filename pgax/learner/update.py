"""What every update returns."""

from typing import NamedTuple

from pgax.types import Array


class Update(NamedTuple):
  """Outputs of an update besides the next state.

  Attributes:
    metrics: scalars, keyed by their log names.
    advantages: `[N, G, T]` advantages that the update used; None without any.
  """

  metrics: dict[str, Array]
  advantages: Array | None = None
