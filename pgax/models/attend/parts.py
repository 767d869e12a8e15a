"""What every backend of attention shares: parts of the keys, scores, visibility."""

from typing import NamedTuple

import jax.numpy as jnp

from pgax.models.cache import NEVER
from pgax.types import Array

MASKED = -1e30  # finite: the difference of two of them is not nan


class Part(NamedTuple):
  """Keys that queries attend to, and their values.

  Attributes:
    keys: `[N, G, K, S, D]`, or `[N, 1, K, S, D]` if the group shares them.
    values: `[N, G, K, S, D]` or `[N, 1, K, S, D]`.
    positions: `[N, G, S]` or `[N, 1, S]` int32, `NEVER` for keys that nothing attends to.
  """

  keys: Array
  values: Array
  positions: Array


class ScoreScale(NamedTuple):
  """The scale and cap of attention scores.

  Attributes:
    scale: number that products are multiplied by.
    softcap: scores are capped to `c * tanh(scores / c)`; 0 for no cap.
  """

  scale: float
  softcap: float = 0.0

  def __call__(self, products: Array) -> Array:
    scores = products * self.scale
    return jnp.tanh(scores / self.softcap) * self.softcap if self.softcap else scores

  def derivative(self, scores: Array) -> Array | float:
    """Returns the derivative of scores by products, given the scores."""
    return self.scale * (1 - (scores / self.softcap) ** 2) if self.softcap else self.scale


class TokenPositions(NamedTuple):
  """Positions of tokens in their texts, which decide what attends to what.

  Attributes:
    positions: `[..., L]` int32.
    segments: `[..., L]` int32, number of each token's text in its row; None if every row
      is one text.
  """

  positions: Array
  segments: Array | None = None


def visible(queries: TokenPositions, keys: TokenPositions, window: Array | None) -> Array:
  """Returns which keys queries attend to.

  A query at position `q` attends to a key at position `p` of its segment if and only if
  `p <= q` and `q - p < window`.

  Args:
    queries: positions and segments `[..., L]`.
    keys: positions and segments `[..., S]`.
    window: int32 scalar; None for no window.

  Returns:
    `[..., L, S]` bool.
  """
  position, key_position = queries.positions[..., None], keys.positions[..., None, :]
  result = key_position <= position
  if window is not None:
    result &= position - key_position < window
  if queries.segments is not None:
    result &= queries.segments[..., None] == keys.segments[..., None, :]
  return result


def window_of(sliding: Array, size: int) -> Array | None:
  """Returns the window of a layer, which no real token exceeds in a layer without one.

  Args:
    sliding: bool scalar, whether the layer is a sliding one.
    size: number of tokens that a token in a sliding layer attends to; 0 if there are none.

  Returns:
    An int32 scalar; None if no layer is sliding.
  """
  return jnp.where(sliding, size, NEVER + 1) if size else None
