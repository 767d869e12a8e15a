"""What an evaluation can draw."""

import math


def check_draws(samples: int, temperature: float, prefix: str = "") -> None:
  """Refuses settings that an evaluation can't draw by.

  Args:
    samples: completions of each problem.
    temperature: that they are drawn at; 0 is greedy.
    prefix: of the names of both settings in messages.

  Raises:
    ValueError: for no samples, a negative temperature, or several greedy samples.
  """
  if samples < 1:
    raise ValueError(f"{prefix}samples is {samples}; it must be at least 1")
  if not 0 <= temperature < math.inf:
    raise ValueError(
      f"{prefix}temperature is {temperature}; it must be at least 0, and finite"
    )
  if samples > 1 and not temperature:
    raise ValueError(
      f"{prefix}samples is {samples} and {prefix}temperature is {temperature}; all greedy "
      "completions of a problem are the same: take 1 sample, or a temperature above 0"
    )
