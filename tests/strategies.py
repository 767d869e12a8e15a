"""Hypothesis strategies: few shapes, many values."""

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

GROUPS = (3, 4)  # prompts, completions
TOKENS = (3, 4, 5)  # prompts, completions, tokens


def floats(shape: tuple[int, ...], low: float = -5.0, high: float = 5.0):
  """Float32 arrays of one shape."""
  return hnp.arrays(np.float32, shape, elements=st.floats(low, high, width=32))


def bools(shape: tuple[int, ...]):
  """Bool arrays of one shape."""
  return hnp.arrays(np.bool_, shape)


def rewards(shape: tuple[int, ...] = GROUPS):
  """Rewards as they occur: binary, of a few levels, or any number."""
  binary = hnp.arrays(np.float32, shape, elements=st.sampled_from([0.0, 1.0]))
  levels = hnp.arrays(np.float32, shape, elements=st.sampled_from([-0.1, 0.35, 100.1]))
  return binary | levels | floats(shape)


def masks(shape: tuple[int, ...] = TOKENS):
  """Masks of sequences that start with real tokens and end in padding; some are empty."""

  def build(lengths: np.ndarray) -> np.ndarray:
    return np.arange(shape[-1]) < lengths[..., None]

  lengths = hnp.arrays(np.int32, shape[:-1], elements=st.integers(0, shape[-1]))
  return lengths.map(build)
