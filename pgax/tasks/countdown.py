"""Countdown: reach a number with given operands; generated, with worked searches."""

import dataclasses
import hashlib
import itertools
from collections.abc import Sequence

import numpy as np

from pgax.tasks.addition import HELD_OUT_FRACTION, Task
from pgax.data.templates import fill
from pgax.rewards.math import MARKER
from pgax.types import Example

_OPERATORS = "+-*"  # division would have to come out even
# With more operands the pupil would have to choose from tens of thousands of expressions.
_MAX_OPERANDS, _MAX_LARGEST = 4, 1000
# For one problem. Where there are any, one draw in 729 makes one at the worst (the held-out
# split of 3 operands up to 9 with `-`); so many are in vain only where there are none.
_MAX_DRAWS = 30_000


def _value(numbers: Sequence[int], operators: Sequence[str]) -> int:
  """Value of `n o n o n ...`, products first."""
  total, sign, product = 0, 1, numbers[0]
  for number, operator in zip(numbers[1:], operators, strict=True):
    if operator == "*":
      product *= number
    else:
      total += sign * product
      sign, product = 1 if operator == "+" else -1, number
  return total + sign * product


def _written(numbers: Sequence[int], operators: Sequence[str]) -> str:
  return str(numbers[0]) + "".join(
    f"{operator}{number}" for operator, number in zip(operators, numbers[1:], strict=True)
  )


def is_held_out(numbers: Sequence[int], target: int) -> bool:
  """Whether a problem belongs to the held-out split, whatever the order of its numbers."""
  text = f"{sorted(numbers)} {target}".encode()
  number = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
  return number % 1000 < 1000 * HELD_OUT_FRACTION


@dataclasses.dataclass(frozen=True)
class CountdownProblems:
  """Problems of one split, in random access: each a function of its index and the seed.

  Attributes:
    size: number of problems.
    held_out: which split.
    operands: how many numbers are given.
    largest: of them.
    operators: see `countdown`.
    patience: see `countdown`.
    tries: see `countdown`.
    template: see `countdown`.
    seed: of everything random.
  """

  size: int
  held_out: bool
  operands: int
  largest: int
  operators: str
  patience: float
  tries: int
  template: str
  seed: int

  def __len__(self) -> int:
    return self.size

  def __getitem__(self, position: int) -> Example:
    if not 0 <= position < self.size:
      raise IndexError(f"position is {position}; there are {self.size} problems")
    rng = np.random.default_rng((self.seed, self.held_out, position))
    numbers, target = self.draw(rng)
    question = f"{' '.join(map(str, numbers))} = {target}"
    return Example(
      prompt=fill(self.template, question),
      ground_truth=str(target),
      solution=self._search(numbers, target, rng),
      metadata={"numbers": tuple(numbers), "target": target},
    )

  def draw(self, rng: np.random.Generator) -> tuple[list[int], int]:
    """Numbers and a target of this split.

    Raises:
      ValueError: if there are none.
    """
    for _ in range(_MAX_DRAWS):
      numbers = rng.integers(1, self.largest + 1, self.operands).tolist()
      operators = rng.choice(list(self.operators), self.operands - 1).tolist()
      target = _value(rng.permutation(numbers).tolist(), operators)
      if target > 0 and is_held_out(numbers, target) == self.held_out:
        return numbers, target
    raise ValueError(
      f"operands is {self.operands}, largest is {self.largest} and operators is "
      f"{self.operators!r}: none of {_MAX_DRAWS} draws makes a problem of the "
      f"{'held-out' if self.held_out else 'training'} split; allow larger numbers or "
      "other operators"
    )

  def _search(self, numbers: list[int], target: int, rng: np.random.Generator) -> str:
    """Expressions tried in a random order, and the answer that the pupil gives."""
    orders = {
      tuple(numbers[i] for i in order)
      for order in itertools.permutations(range(len(numbers)))
    }
    signs = list(itertools.product(self.operators, repeat=len(numbers) - 1))
    candidates = list(itertools.product(sorted(orders), signs))
    steps, seen = [], set()
    for index in rng.permutation(len(candidates)).tolist():
      written, value = _written(*candidates[index]), _value(*candidates[index])
      if value in seen:
        continue
      steps.append(f"{written}={value} {'yes' if value == target else 'no'}")
      seen.add(value)
      if value == target or len(steps) == self.tries or rng.random() >= self.patience:
        break
    return f"{' '.join(steps)} {MARKER} {written}"


def countdown(
  operands: int = 3,
  largest: int = 9,
  operators: str = _OPERATORS,
  patience: float = 1.0,
  tries: int = 8,
  template: str = "{prompt}\n",
  train_size: int = 20000,
  held_out_size: int = 1000,
  seed: int = 0,
) -> Task:
  """Reach a number with given operands, each used once; `rewards.Countdown` scores it.

  The worked solutions are those of a pupil who tries expressions at random, computes each,
  says whether it has the value that is asked for, repeats no value, and answers with the
  last one: when that was right, when the patience is at its end, or after `tries`.
  Imitation copies the impatience; the reward, which sees the answer only, is what teaches
  to go on and to try what is promising. Every problem can be solved without brackets and
  division. Source of the task: TinyZero (Pan et al. 2025).

  Args:
    operands: how many numbers are given, from 2 to 4.
    largest: of them, from 2 to 1000; the smallest is 1.
    operators: those that solutions are made of, some of `+-*`; the reward allows `/` too.
    patience: chance that the pupil goes on after an expression that is wrong, in [0, 1].
    tries: most expressions that the pupil tries.
    template: the prompt, with `{prompt}` where `3 4 5 = 23` stands.
    train_size: number of training problems.
    held_out_size: number of problems to be judged by; of all problems, whatever the order
      of their numbers, a tenth is held out.
    seed: of everything random.

  Returns:
    A `Task`.

  Raises:
    ValueError: if an argument is out of its range, or a split has no problems.
  """
  for name, value, low, high in (
    ("operands", operands, 2, _MAX_OPERANDS),
    ("largest", largest, 2, _MAX_LARGEST),
    ("patience", patience, 0, 1),
    ("tries", tries, 1, 1000),
    ("train_size", train_size, 1, 2**31),
    ("held_out_size", held_out_size, 1, 2**31),
    ("seed", seed, 0, 2**31),
  ):
    if not low <= value <= high:
      raise ValueError(f"{name} is {value}; it must be in [{low}, {high}]")
  if not operators or set(operators) - set(_OPERATORS):
    raise ValueError(f"operators is {operators!r}; allowed are some of {_OPERATORS!r}")
  fill(template, "")
  settings = (operands, largest, operators, patience, tries, template, seed)
  train = CountdownProblems(train_size, False, *settings)
  held_out = CountdownProblems(held_out_size, True, *settings)
  for problems in (train, held_out):
    problems.draw(np.random.default_rng(seed))  # refuses what has no problems
  return Task(train, held_out)
