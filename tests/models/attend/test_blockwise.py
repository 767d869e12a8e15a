"""Attention in blocks: the values and gradients of attention that holds all scores."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pgax.models.attend import Part, Places, Scores, blockwise, einsum
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
  return queries, parts, Places(own.positions, numbers), jnp.asarray(cotangent, jnp.float32)


@functools.partial(jax.jit, static_argnums=(0, 6))
def outputs(attend, queries, parts, where, cotangent, window, scores):
  """Values and log-sums at real tokens, and the gradients of queries, keys and values."""

  def loss(queries, pairs):
    whole = tuple(
      Part(*pair, part.positions) for pair, part in zip(pairs, parts, strict=True)
    )
    mixed, log_sum = attend(queries, whole, where, window, scores)
    return jnp.sum(mixed * cotangent), (mixed, log_sum)

  pairs = tuple(part[:2] for part in parts)
  gradients, values = jax.grad(loss, argnums=(0, 1), has_aux=True)(queries, pairs)
  real = where.positions < NEVER
  values = [jnp.where(real[..., *[None] * (x.ndim - 3)], x, 0) for x in values]
  return values, gradients


@functools.cache
def in_blocks(size):
  """Attention in blocks of a size, as one function for each, which is compiled once."""
  return functools.partial(blockwise.attend, block=size)


def compare(given, window, scores, block, tolerance):
  window = None if window is None else jnp.int32(window)
  expected = outputs(einsum.attend, *given, window, scores)
  ours = outputs(in_blocks(block), *given, window, scores)
  for x, y in zip(*map(jax.tree.leaves, (ours, expected)), strict=True):
    assert x.dtype == y.dtype
    x, y = np.asarray(x, np.float32), np.asarray(y, np.float32)
    np.testing.assert_allclose(
      x, y, atol=tolerance * max(1, np.abs(y).max()), rtol=tolerance
    )


@pytest.mark.parametrize(
  ("repeats", "shared", "block"),
  [(1, True, 8), (2, True, 16), (2, False, 8), (1, False, 256)],
)
def test_prompt_and_completion(repeats, shared, block):
  compare(make(repeats, shared=shared), None, Scores(D**-0.5), block, 1e-5)


@pytest.mark.parametrize("softcap", [0.0, 2.0])
def test_windows_and_softcaps(softcap):
  for window in (1, 5, 30, NEVER + 1):  # one program for all
    compare(make(2, seed=window % 7), window, Scores(0.4, softcap), 8, 1e-5)


@pytest.mark.parametrize("window", [None, 4])
def test_rows_of_several_texts(window):
  compare(make(2, segments=True), window, Scores(D**-0.5), 8, 1e-5)


def test_bfloat16():
  compare(make(2, dtype=jnp.bfloat16), None, Scores(D**-0.5), 16, 3e-2)


def test_padding_gets_zeros():
  queries, parts, where, _ = make(1)
  mixed, log_sum = blockwise.attend(queries, parts, where, None, Scores(1.0), 8)
  padding = np.asarray(where.positions) == NEVER
  assert padding.any() and np.isfinite(log_sum).all()
  assert not np.asarray(mixed)[padding].any()
