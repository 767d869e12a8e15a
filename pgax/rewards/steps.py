"""Rewards of steps: is every column of a worked sum right?"""

from collections.abc import Mapping
from typing import Any

from pgax.rewards.math import MARKER
from pgax.types import NO_METADATA, StepReward


def addition_steps(
  prompt: str,
  completion: str,
  ground_truth: str,
  metadata: Mapping[str, Any] = NO_METADATA,
) -> list[StepReward]:
  """Scores the columns of a sum as the task `addition` works them, and its answer.

  A column is right if its digits, the carry into it and their sum are, whatever stands
  before it; so the first forgotten carry is blamed, and what follows from it too.

  Args:
    prompt: such as `087+045=`.
    completion: such as `7+5=12 8+4+1=13 0+0+1=1 #### 132`, or anything else.
    ground_truth: the sum.
    metadata: not looked at.

  Returns:
    A step for every piece between spaces, the marker and what follows as one: reward 1.0
    where it is what it should be and 0.0 elsewhere. A completion without a character has
    no step.

  Raises:
    ValueError: if the prompt is not a sum of two numbers of the same number of digits.
  """
  first, plus, second = prompt.removesuffix("=").partition("+")
  del metadata
  digits = plus and first.isdecimal() and second.isdecimal()
  if not digits or len(first) != len(second):
    raise ValueError(
      f"prompt is {prompt!r}; it must be a sum of numbers of one length, as '087+045='"
    )
  expected, carry = [], 0
  for column, (a, b) in enumerate(zip(reversed(first), reversed(second), strict=True)):
    terms = [int(a), int(b)] + [carry] * (column > 0)
    expected.append("+".join(map(str, terms)) + f"={sum(terms)}")
    carry = sum(terms) // 10
  expected.append(f"{MARKER} {ground_truth}")
  body, marker, answer = completion.partition(MARKER)
  pieces = body.split(" ")
  if marker:
    pieces = [*pieces[:-1], pieces[-1] + marker + answer]
  steps, end = [], 0
  for index, piece in enumerate(pieces):
    end += len(piece)
    if piece:
      right = index < len(expected) and piece == expected[index]
      steps.append(StepReward(end, float(right)))
    end += 1  # the space behind it
  return steps
