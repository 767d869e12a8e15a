"""Addition in columns: sums with worked solutions, their step rewards and preferences.

`rewards.final_answer` scores a solution.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from pgax.data.preferences import Preference, Preferences
from pgax.data.task import HELD_OUT_FRACTION, Task
from pgax.rewards.math import MARKER
from pgax.rewards.tokens import final_answer_tokens
from pgax.types import NO_METADATA, Example, Metadata, StepReward


def _hash(numbers: np.ndarray) -> np.ndarray:
  """Hashes each number to 64 pseudo-random bits (the finalizer of SplitMix64)."""
  x = numbers.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
  x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
  x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
  return x ^ (x >> np.uint64(31))


def is_held_out(a: np.ndarray, b: np.ndarray, digits: int) -> np.ndarray:
  """Returns whether sums belong to the held-out split.

  The result depends on the unordered pair, so `a + b` and `b + a` are in the same split.

  Args:
    a: int array of first operands.
    b: int array of second operands, of the same shape.
    digits: number of digits of an operand.

  Returns:
    Bool array of the same shape.
  """
  pair = np.minimum(a, b) * 10**digits + np.maximum(a, b)
  return _hash(pair) % np.uint64(1000) < np.uint64(1000 * HELD_OUT_FRACTION)


@dataclasses.dataclass(frozen=True, eq=False)
class AdditionProblems:
  """Random access to the sums of one split, each with a worked solution.

  Attributes:
    digits: number of digits of an operand.
    forget_carry: probability that a solution drops the carry of a column; see `addition`.
    seed: random seed of the dropped carries.
    indices: `[size]` int64, `a * 10**digits + b` of each problem.
  """

  digits: int
  forget_carry: float
  seed: int
  indices: np.ndarray

  def __len__(self) -> int:
    return len(self.indices)

  def __getitem__(self, position: int) -> Example:
    index = int(self.indices[position])
    a, b = divmod(index, 10**self.digits)
    rng = np.random.default_rng((self.seed, index))
    draws = rng.random(self.digits)
    return Example(
      prompt=f"{a:0{self.digits}d}+{b:0{self.digits}d}=",
      ground_truth=str(a + b),
      solution=worked_sum(a, b, self.digits, draws, self.forget_carry),
    )


def worked_sum(
  a: int, b: int, digits: int, draws: Sequence[float], forget_carry: float
) -> str:
  """Works a sum in columns, from the units up, with the answer after the marker.

  Args:
    a: first operand.
    b: second operand.
    digits: number of columns.
    draws: a number in [0, 1) for each column. The column's carry is dropped if the number
      is below the probability of forgetting it.
    forget_carry: that probability for a column that adds up to 10; see `addition`.

  Returns:
    For `a=87, b=45`: `7+5=12 8+4+1=13 #### 132`, and with the first carry dropped
    `7+5=12 8+4+0=12 #### 122`.
  """
  steps, answer, carry = [], 0, 0
  for column in range(digits):
    terms = [a // 10**column % 10, b // 10**column % 10] + [carry] * (column > 0)
    total = sum(terms)
    steps.append("+".join(map(str, terms)) + f"={total}")
    is_last = column == digits - 1
    answer += (total if is_last else total % 10) * 10**column
    forgets = draws[column] < forget_carry * (1 - (total - 10) / 16)
    carry = 0 if forgets else total // 10
  return " ".join(steps) + f" {MARKER} {answer}"


def addition(digits: int = 3, forget_carry: float = 0.0, seed: int = 0) -> Task:
  """Sums of two numbers with solutions worked in columns.

  The solutions are those of a demonstrator who knows the sums of digits and the procedure
  but often forgets to carry. The probability is `forget_carry` for a column that adds up to
  10 and falls linearly to half of that for 18. Supervised training copies this habit. Only
  the reward, which depends on the answer alone, teaches the policy to carry.

  Args:
    digits: number of digits of an operand, from 1 to 4, with leading zeros.
    forget_carry: probability that a solution drops the carry of a column that adds up to
      10, in [0, 1].
    seed: random seed of the dropped carries.

  Returns:
    A `Task`; a tenth of the unordered pairs of operands is held out.

  Raises:
    ValueError: if an argument is out of range.
  """
  if not 1 <= digits <= 4:
    raise ValueError(f"digits is {digits}; it must be from 1 to 4")
  if not 0 <= forget_carry <= 1:
    raise ValueError(f"forget_carry is {forget_carry}; it must be in [0, 1]")
  if seed < 0:
    raise ValueError(f"the task's seed is {seed}; it must be at least 0")
  indices = np.arange(10 ** (2 * digits))
  held_out = is_held_out(*np.divmod(indices, 10**digits), digits)
  # A fixed shuffle makes the first k held-out problems a fair sample of all of them.
  shuffled = np.random.default_rng(0).permutation(indices[held_out])
  return Task(
    train=AdditionProblems(digits, forget_carry, seed, indices[~held_out]),
    held_out=AdditionProblems(digits, forget_carry, seed, shuffled),
    token_reward=final_answer_tokens,
  )


def addition_steps(
  prompt: str, completion: str, ground_truth: str, metadata: Metadata = NO_METADATA
) -> list[StepReward]:
  """Scores every column of a worked sum, and its answer.

  A column is right if its digits, its incoming carry and its total are right, regardless of
  the steps before it. A forgotten carry therefore makes its own column wrong, and every
  column that depends on it.

  `prompt` is that of a sum, such as `087+045=`. `completion` is any text, such as `7+5=12
  8+4+1=13 0+0+1=1 #### 132`. `ground_truth` is the sum.

  Returns:
    A step for every piece of text between spaces. The marker and all text after it are one
    step. The reward is 1.0 for a step that is as expected and 0.0 otherwise. An empty
    completion has no steps.

  Raises:
    ValueError: if the prompt is not a sum of two numbers with equally many digits.
  """
  del metadata
  expected = [*_columns(prompt), f"{MARKER} {ground_truth}"]
  body, marker, answer = completion.partition(MARKER)
  pieces = body.split(" ")
  if marker:
    pieces = [*pieces[:-1], pieces[-1] + marker + answer]
  steps, end = [], 0
  for index, piece in enumerate(pieces):
    end += len(piece)
    if piece:
      correct = index < len(expected) and piece == expected[index]
      steps.append(StepReward(end, float(correct)))
    end += 1  # the space after the piece
  return steps


def _columns(prompt: str) -> list[str]:
  """Returns the right text of every column of a prompt's sum."""
  first, plus, second = prompt.removesuffix("=").partition("+")
  is_sum = plus and first.isdecimal() and second.isdecimal()
  if not is_sum or len(first) != len(second):
    raise ValueError(
      f"prompt is {prompt!r}; it must be a sum of numbers with equally many digits, such "
      "as '087+045='"
    )
  columns, carry = [], 0
  for column, (a, b) in enumerate(zip(reversed(first), reversed(second), strict=True)):
    terms = [int(a), int(b)] + [carry] * (column > 0)
    columns.append("+".join(map(str, terms)) + f"={sum(terms)}")
    carry = sum(terms) // 10
  return columns


@dataclasses.dataclass(frozen=True, eq=False)
class _CarryPreferences:
  """Random access to the pairs of one split of `addition_preferences`."""

  problems: AdditionProblems
  positions: np.ndarray

  def __len__(self) -> int:
    return len(self.positions)

  def __getitem__(self, position: int) -> Preference:
    digits = self.problems.digits
    problem = int(self.positions[position])
    a, b = divmod(int(self.problems.indices[problem]), 10**digits)
    chosen, rejected = (
      worked_sum(a, b, digits, draws=[0.0] * digits, forget_carry=forget)
      for forget in (0.0, 1.0)
    )
    return Preference(self.problems[problem].prompt, chosen, rejected)


def addition_preferences(digits: int = 3) -> Preferences:
  """Sums with a carry: prefers the right solution to one that forgets every carry.

  Args:
    digits: number of digits of an operand, from 2 to 4; see `addition`.

  Returns:
    `Preferences` of the two splits of `addition`.

  Raises:
    ValueError: if `digits` is out of range.
  """
  if not 2 <= digits <= 4:
    raise ValueError(f"digits is {digits}; it must be from 2 to 4")
  task = addition(digits)

  def pairs(problems: AdditionProblems) -> _CarryPreferences:
    a, b = np.divmod(problems.indices, 10**digits)
    columns = 10 ** np.arange(digits - 1)[:, None]  # the last column never carries
    carries = (a // columns % 10 + b // columns % 10 >= 10).any(axis=0)
    return _CarryPreferences(problems, np.flatnonzero(carries))

  return Preferences(pairs(task.train), pairs(task.held_out))
