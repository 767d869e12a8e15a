"""Attention that holds all scores at once: the reference, and best for few queries."""

import jax
import jax.numpy as jnp
import numpy as np

from pgax.models.attend.parts import MASKED, Part, ScoreScale, TokenPositions, visible
from pgax.types import Array


def attend(
  queries: Array,
  parts: tuple[Part, ...],
  tokens: TokenPositions,
  window: Array | None,
  scale: ScoreScale,
) -> Array:
  """Attends to all parts with one softmax over their concatenated scores.

  Args:
    queries: `[N, G, L, K, R, D]`, `R` queries for each key head.
    parts: keys, values and positions.
    tokens: positions and segments `[N, G, L]` of the queries; with segments there is one
      part, whose keys have the same.
    window: int32 scalar; None for no window.
    scale: scale and cap of the scores.

  Returns:
    Averaged values `[N, G, L, K, R, D]`, float32. A query that attends to nothing gets a
    mean.
  """
  masked = []
  for keys, _, positions in parts:
    mask = visible(tokens, TokenPositions(positions, tokens.segments), window)
    scores = scale(_products(queries, keys))
    masked.append(jnp.where(mask[:, :, None, None], scores, MASKED))
  probs = jax.nn.softmax(jnp.concatenate(masked, axis=-1), axis=-1)
  ends = np.cumsum([scores.shape[-1] for scores in masked])[:-1]
  split = jnp.split(probs, ends, axis=-1)
  return sum(_average(p, part.values) for p, part in zip(split, parts, strict=True))


def _products(queries: Array, keys: Array) -> Array:
  """Multiplies queries `[N, G, L, K, R, D]` and keys, to `[N, G, K, R, L, S]` float32."""
  shared = keys.shape[1] == 1
  formula = "nglkrd,nksd->ngkrls" if shared else "nglkrd,ngksd->ngkrls"
  keys = keys[:, 0] if shared else keys
  return jnp.einsum(formula, queries, keys, preferred_element_type=jnp.float32)


def _average(probs: Array, values: Array) -> Array:
  """Averages values by probabilities `[N, G, K, R, L, S]`, to `[N, G, L, K, R, D]`."""
  shared = values.shape[1] == 1
  repeats, queries = probs.shape[3:5]
  if queries == 1 < repeats and not shared:
    # Within a tenth of the product on CPUs. With one query for each key head, XLA computes
    # this sum 40 times as slowly as the product.
    output = jnp.sum(probs[..., 0, :, None] * values[:, :, :, None], axis=-2)
    return output[:, :, None]
  # A plain matrix product, transposed afterwards: XLA's CPU backend has no other one in
  # bfloat16.
  formula = "ngkrls,nksd->nkgrld" if shared else "ngkrls,ngksd->ngkrld"
  probs, values = probs.astype(values.dtype), values[:, 0] if shared else values
  output = jnp.einsum(formula, probs, values, preferred_element_type=jnp.float32)
  output = output.swapaxes(1, 2) if shared else output
  return jnp.moveaxis(output, 4, 2)
