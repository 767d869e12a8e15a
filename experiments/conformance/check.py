"""A number of another library, and that of pgax."""

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class Check:
  """A comparison with an expected array.

  Attributes:
    case: name of the compared quantity in the other library.
    call: the call in pgax that computes it.
    expected: the number or array of the other library.
    actual: the one of pgax.
    rtol: allowed relative error, at most that of the other library's own test.
  """

  case: str
  call: str
  expected: np.ndarray | float
  actual: np.ndarray | float
  rtol: float

  def agrees(self) -> bool:
    """Returns whether the arrays are equal within the error, relative to the largest."""
    expected, actual = (np.asarray(x, np.float64) for x in (self.expected, self.actual))
    if expected.shape != actual.shape:
      return False
    allowed = self.rtol * max(np.max(np.abs(expected), initial=0.0), 1e-3)
    return bool(np.all(np.abs(expected - actual) <= allowed))  # False for nan
