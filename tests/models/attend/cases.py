"""Attention in parts with padding, and its comparison with `einsum`."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from pgax.models.attend import Part, TokenPositions, einsum
from pgax.models.cache import NEVER

N, G, K, D = 2, 3, 2, 8
LENGTH, PROMPT = 37, 21


def places(rng, lengths, size):
  """Positions of rows of some lengths, padded on the right."""
  positions = np.arange(size) + rng.integers(0, 3)
  return np.where(np.arange(size) < lengths[..., None], positions, NEVER).astype(np.int32)


def make(repeats, *, shared=True, segments=False, dtype=jnp.float32, seed=0):
  """Queries, parts, places and a cotangent, with padding in all of them."""
  rng = np.random.default_rng(seed)

  def normal(*shape):
    return jnp.asarray(rng.normal(size=shape) * 1.5, dtype)

  where = places(rng, rng.integers(LENGTH // 2, LENGTH + 1, (N, G)), LENGTH)
  where = np.where(where < NEVER, where + PROMPT, NEVER)
  own = Part(normal(N, G, K, LENGTH, D), normal(N, G, K, LENGTH, D), jnp.asarray(where))
  parts = (own,)
  numbers = None
  if segments:
    numbers = np.sort(rng.integers(1, 5, (N, G, LENGTH)), axis=-1).astype(np.int32)
  else:
    groups = 1 if shared else G
    at = places(rng, rng.integers(PROMPT // 2, PROMPT + 1, (N, groups)), PROMPT)
    prefix = (normal(N, groups, K, PROMPT, D), normal(N, groups, K, PROMPT, D))
    parts = (Part(*prefix, jnp.asarray(at)), own)
  queries = normal(N, G, LENGTH, K, repeats, D)
  cotangent = rng.normal(size=queries.shape) * (where < NEVER)[..., None, None, None]
  return (
    queries,
    parts,
    TokenPositions(own.positions, numbers),
    jnp.asarray(cotangent, jnp.float32),
  )


@functools.partial(jax.jit, static_argnums=(0, 6))
def outputs(attend, queries, parts, tokens, cotangent, window, scale):
  """Values at real tokens, and the gradients of queries, keys and values."""

  def loss(queries, pairs):
    whole = tuple(
      Part(*pair, part.positions) for pair, part in zip(pairs, parts, strict=True)
    )
    output = attend(queries, whole, tokens, window, scale)
    return jnp.sum(output * cotangent), output

  pairs = tuple(part[:2] for part in parts)
  gradients, output = jax.grad(loss, argnums=(0, 1), has_aux=True)(queries, pairs)
  real = (tokens.positions < NEVER)[..., None, None, None]
  return jnp.where(real, output, 0), gradients


def compare(attend, given, window, scale, tolerance):
  """Compares values and gradients with those of `einsum`."""
  window = None if window is None else jnp.int32(window)
  expected = outputs(einsum.attend, *given, window, scale)
  ours = outputs(attend, *given, window, scale)
  for x, y in zip(*map(jax.tree.leaves, (ours, expected)), strict=True):
    assert x.dtype == y.dtype
    x, y = np.asarray(x, np.float32), np.asarray(y, np.float32)
    np.testing.assert_allclose(
      x, y, atol=tolerance * max(1, np.abs(y).max()), rtol=tolerance
    )
