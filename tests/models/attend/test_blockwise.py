"""Attention in blocks: the values and gradients of attention that holds all scores."""

import functools

import jax.numpy as jnp
import numpy as np
import pytest

from pgax.models.attend import ScoreScale, blockwise
from pgax.models.cache import NEVER
from tests.models.attend.cases import D, compare, make


@functools.cache
def in_blocks(size):
  """Attention in blocks of a size, as one function for each, which is compiled once."""
  return functools.partial(blockwise.attend, block=size)


@pytest.mark.parametrize(
  ("repeats", "shared", "block"),
  [(1, True, 8), (2, True, 16), (2, False, 8), (1, False, 256)],
)
def test_prompt_and_completion(repeats, shared, block):
  compare(in_blocks(block), make(repeats, shared=shared), None, ScoreScale(D**-0.5), 1e-5)


@pytest.mark.parametrize("softcap", [0.0, 2.0])
def test_windows_and_softcaps(softcap):
  for window in (1, 5, 30, NEVER + 1):  # one program for all
    compare(in_blocks(8), make(2, seed=window % 7), window, ScoreScale(0.4, softcap), 1e-5)


@pytest.mark.parametrize("window", [None, 4])
def test_rows_of_several_texts(window):
  compare(in_blocks(8), make(2, segments=True), window, ScoreScale(D**-0.5), 1e-5)


def test_bfloat16():
  compare(in_blocks(16), make(2, dtype=jnp.bfloat16), None, ScoreScale(D**-0.5), 3e-2)


def test_padding_gets_zeros():
  queries, parts, tokens, _ = make(1)
  output = blockwise.attend(queries, parts, tokens, None, ScoreScale(1.0), 8)
  padding = np.asarray(tokens.positions) == NEVER
  assert padding.any() and np.isfinite(output).all()
  assert not np.asarray(output)[padding].any()
