"""Tasks: what a run trains on and what it is judged by; generated problems."""

import dataclasses
import hashlib
from collections.abc import Sequence

import numpy as np

from pgax.rewards.math import MARKER
from pgax.types import Example

HELD_OUT_FRACTION = 0.1


@dataclasses.dataclass(frozen=True)
class Task:
  """Problems to train on and problems to be judged by; no problem is in both.

  Attributes:
    train: the training problems.
    held_out: the problems that accuracy is measured on.
    bad_rows: where each row stands that was skipped, and what is wrong with it.
    filtered: number of training problems that a filter left out.
  """

  train: Sequence[Example]
  held_out: Sequence[Example]
  bad_rows: tuple[str, ...] = ()
  filtered: int = 0

  def __post_init__(self):
    for name, examples in (("train", self.train), ("held_out", self.held_out)):
      if not len(examples):
        raise ValueError(f"the task's split {name!r} is empty; it needs a problem at least")


@dataclasses.dataclass(frozen=True, eq=False)
class Subset:
  """Some of the examples, in random access.

  Attributes:
    examples: all of them.
    indices: `[size]` int64, of those that are kept.
  """

  examples: Sequence[Example]
  indices: np.ndarray

  def __len__(self) -> int:
    return len(self.indices)

  def __getitem__(self, position: int) -> Example:
    return self.examples[int(self.indices[position])]


def fingerprint(examples: Sequence[Example], count: int = 64) -> dict[str, int | str]:
  """What tells a list of problems from another one, as far as a spread of them does.

  Args:
    examples: the problems.
    count: how many of them are looked at.

  Returns:
    `size`, and `hash` of prompts and ground truths, as JSON values.
  """
  digest = hashlib.blake2b(digest_size=8)
  for index in np.linspace(0, len(examples) - 1, count).astype(int).tolist():
    example = examples[index]
    digest.update(repr((example.prompt, example.ground_truth)).encode())
  return {"size": len(examples), "hash": digest.hexdigest()}


def _mix(numbers: np.ndarray) -> np.ndarray:
  """A fixed pseudo-random 64-bit hash of each number (the finaliser of SplitMix64)."""
  x = numbers.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
  x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
  x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
  return x ^ (x >> np.uint64(31))


def is_held_out(a: np.ndarray, b: np.ndarray, digits: int) -> np.ndarray:
  """Whether a sum belongs to the held-out split.

  It depends on the unordered pair alone: `a + b` and `b + a` are always on one side.

  Args:
    a: int array of first operands.
    b: int array of second operands, the same shape.
    digits: number of digits of an operand.

  Returns:
    Bool array of the same shape.
  """
  pair = np.minimum(a, b) * 10**digits + np.maximum(a, b)
  return _mix(pair) % np.uint64(1000) < np.uint64(1000 * HELD_OUT_FRACTION)


@dataclasses.dataclass(frozen=True, eq=False)
class AdditionProblems:
  """Random access to the sums of one split, each with a worked solution.

  Attributes:
    digits: number of digits of an operand.
    forget_carry: chance that a solution drops the carry of a column; see `addition`.
    seed: of the choice which carries are dropped.
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
  """Column addition, from the units up, with the answer behind the marker.

  Args:
    a: first operand.
    b: second operand.
    digits: number of columns.
    draws: for each column, a number in [0, 1); its carry is dropped if the number is
      below the chance to forget it.
    forget_carry: that chance for a column that adds up to 10; see `addition`.

  Returns:
    For `a=87, b=45`: `7+5=12 8+4+1=13 #### 132`, and with the first carry dropped
    `7+5=12 8+4+0=12 #### 122`.
  """
  steps, answer, carry = [], 0, 0
  for column in range(digits):
    terms = [a // 10**column % 10, b // 10**column % 10] + [carry] * (column > 0)
    total = sum(terms)
    steps.append("+".join(map(str, terms)) + f"={total}")
    last = column == digits - 1
    answer += (total if last else total % 10) * 10**column
    forgets = draws[column] < forget_carry * (1 - (total - 10) / 16)
    carry = 0 if forgets else total // 10
  return " ".join(steps) + f" {MARKER} {answer}"


def addition(digits: int = 3, forget_carry: float = 0.0, seed: int = 0) -> Task:
  """Sums of two numbers, worked in columns.

  The worked solutions are those of a pupil who knows the digits' sums and the procedure
  but often forgets to carry: a column that adds up to 10 with the chance `forget_carry`,
  and the larger the sum the less, down to half that chance at 18. Imitation copies the
  habit; the reward, which sees the answer only, is what teaches to carry.

  Args:
    digits: number of digits of an operand, from 1 to 4; shorter ones get leading zeros.
    forget_carry: chance that a solution drops the carry of a column that adds up to 10,
      in [0, 1].
    seed: of the choice which carries are dropped.

  Returns:
    A `Task`; a tenth of the unordered pairs of operands is held out.

  Raises:
    ValueError: if an argument is out of its range.
  """
  if not 1 <= digits <= 4:
    raise ValueError(f"digits is {digits}; allowed are 1 to 4")
  if not 0 <= forget_carry <= 1:
    raise ValueError(f"forget_carry is {forget_carry}; it must be in [0, 1]")
  if seed < 0:
    raise ValueError(f"the task's seed is {seed}; it must be at least 0")
  indices = np.arange(10 ** (2 * digits))
  held_out = is_held_out(*np.divmod(indices, 10**digits), digits)
  # A fixed shuffle: the first k held-out problems are then a fair sample of all of them.
  shuffled = np.random.default_rng(0).permutation(indices[held_out])
  return Task(
    train=AdditionProblems(digits, forget_carry, seed, indices[~held_out]),
    held_out=AdditionProblems(digits, forget_carry, seed, shuffled),
  )
