"""Countdown: reach a target with given numbers; generated problems and their verifier."""

import dataclasses
import hashlib
import itertools
import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from pgax.data.task import HELD_OUT_FRACTION, Task
from pgax.data.templates import fill
from pgax.errors import check_each
from pgax.rewards.answers import tagged_answer
from pgax.rewards.expressions import parse_expression
from pgax.rewards.math import MARKER
from pgax.tasks.countdown_tokens import countdown_tokens
from pgax.types import NO_METADATA, Example, Metadata

_OPERATORS = "+-*"  # quotients would have to be integers
# With more operands, the demonstrator would choose from tens of thousands of expressions.
_MAX_OPERANDS, _MAX_LARGEST = 4, 1000
# Limit of draws per problem. Among settings that have problems, at worst one draw in 729
# yields one (the held-out split of 3 operands up to 9 with `-`), so only settings without
# problems exceed the limit.
_MAX_DRAWS = 30_000


@dataclasses.dataclass(frozen=True)
class Countdown:
  """Scores whether an expression of the given numbers reaches the target.

  The expression is the contents of the last `<answer>...</answer>`, or else the rest of the
  line after the last `####`, or else the entire completion. `parse_expression` evaluates it
  exactly. Source of the rules: TinyZero (Pan et al. 2025).

  Attributes:
    use_all: whether every number must be used exactly once, as in TinyZero; otherwise at
      most once, as on television.
    format_score: reward of an expression of the right numbers that misses the target; 0.1
      in TinyZero.
  """

  use_all: bool = True
  format_score: float = 0.0

  def __post_init__(self):
    check_each(self, ["format_score"], math.isfinite, "finite")

  def __call__(
    self, prompt: str, completion: str, ground_truth: str, metadata: Metadata = NO_METADATA
  ) -> dict[str, float]:
    """Scores a completion.

    `ground_truth` is the target, an integer as text. `metadata` has `numbers`, the given
    numbers.

    Returns:
      `reward`; `accuracy`, 1.0 if the expression reaches the target and 0.0 otherwise; and
      `format`, 1.0 if it is an expression of the given numbers and 0.0 otherwise.

    Raises:
      ValueError: if the ground truth is not an integer or no numbers are given.
    """
    del prompt
    if "numbers" not in metadata:
      raise ValueError(f"the metadata has the keys {sorted(metadata)} and no 'numbers'")
    target, given = int(ground_truth), Counter(map(int, metadata["numbers"]))
    expression = parse_expression(tagged_answer(completion))
    used = Counter(expression.numbers) if expression else None
    formatted = used is not None and (used == given if self.use_all else used <= given)
    correct = formatted and expression.value == target
    return {
      "reward": 1.0 if correct else self.format_score * formatted,
      "accuracy": float(correct),
      "format": float(formatted),
    }


def _value(numbers: Sequence[int], operators: Sequence[str]) -> int:
  """Evaluates `n o n o n ...`, products first."""
  total, sign, product = 0, 1, numbers[0]
  for number, operator in zip(numbers[1:], operators, strict=True):
    if operator == "*":
      product *= number
    else:
      total += sign * product
      sign, product = 1 if operator == "+" else -1, number
  return total + sign * product


def _expression(numbers: Sequence[int], operators: Sequence[str]) -> str:
  return str(numbers[0]) + "".join(
    f"{operator}{number}" for operator, number in zip(operators, numbers[1:], strict=True)
  )


def is_held_out(numbers: Sequence[int], target: int) -> bool:
  """Returns whether a problem is held out; the order of its numbers does not matter."""
  text = f"{sorted(numbers)} {target}".encode()
  number = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
  return number % 1000 < 1000 * HELD_OUT_FRACTION


@dataclasses.dataclass(frozen=True)
class CountdownProblems:
  """Random access to problems of one split, each a function of its index and the seed.

  Attributes:
    size: number of problems.
    held_out: whether this is the held-out split.
    operands: number of given numbers.
    largest: upper bound of the given numbers.
    operators: operators of the solutions; see `countdown`.
    patience: patience of the demonstrator; see `countdown`.
    tries: maximum number of expressions in a solution; see `countdown`.
    template: prompt with `{prompt}` in place of the question.
    seed: random seed.
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
    """Draws the numbers and the target of a problem of this split.

    Args:
      rng: random generator.

    Returns:
      The numbers and the target.

    Raises:
      ValueError: if the split has no problems.
    """
    for _ in range(_MAX_DRAWS):
      numbers = rng.integers(1, self.largest + 1, self.operands).tolist()
      operators = rng.choice(list(self.operators), self.operands - 1).tolist()
      target = _value(rng.permutation(numbers).tolist(), operators)
      if target > 0 and is_held_out(numbers, target) == self.held_out:
        return numbers, target
    raise ValueError(
      f"operands is {self.operands}, largest is {self.largest} and operators is "
      f"{self.operators!r}: none of {_MAX_DRAWS} draws is a problem of the "
      f"{'held-out' if self.held_out else 'training'} split; allow larger numbers or "
      "other operators"
    )

  def _search(self, numbers: list[int], target: int, rng: np.random.Generator) -> str:
    """Returns expressions tried in random order and the demonstrator's answer."""
    orders = {
      tuple(numbers[i] for i in order)
      for order in itertools.permutations(range(len(numbers)))
    }
    signs = list(itertools.product(self.operators, repeat=len(numbers) - 1))
    candidates = list(itertools.product(sorted(orders), signs))
    steps, values = [], set()
    for index in rng.permutation(len(candidates)).tolist():
      expression, value = _expression(*candidates[index]), _value(*candidates[index])
      if value in values:
        continue
      steps.append(f"{expression}={value} {'yes' if value == target else 'no'}")
      values.add(value)
      if value == target or len(steps) == self.tries or rng.random() >= self.patience:
        break
    return f"{' '.join(steps)} {MARKER} {expression}"


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
  """Problems of reaching a target with given numbers, each used once.

  `Countdown` scores a solution. The solutions are those of a demonstrator who tries random
  expressions with different values, computes each, and says whether it reaches the target.
  The demonstrator answers with the last expression, which is either right or the one at
  which patience or `tries` ran out. Supervised training copies the impatience. Only the
  reward, which depends on the answer alone, teaches the policy to continue and to try
  promising expressions. Every problem has a solution without parentheses and division.
  Source of the task: TinyZero (Pan et al. 2025).

  Args:
    operands: number of given numbers, from 2 to 4.
    largest: upper bound of the given numbers, from 2 to 1000; the lower bound is 1.
    operators: operators of the solutions, a subset of `+-*`; the reward also allows `/`.
    patience: probability that the demonstrator continues after a wrong expression, in
      [0, 1].
    tries: maximum number of expressions that the demonstrator tries.
    template: prompt with `{prompt}` in place of the question, such as `3 4 5 = 23`.
    train_size: number of training problems.
    held_out_size: number of held-out problems. A tenth of all possible problems can be held
      out; the order of their numbers does not matter.
    seed: random seed.

  Returns:
    A `Task`.

  Raises:
    ValueError: if an argument is out of range, or a split has no problems.
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
    raise ValueError(
      f"operators is {operators!r}; it must be a nonempty subset of {_OPERATORS!r}"
    )
  fill(template, "")  # checks the template
  settings = (operands, largest, operators, patience, tries, template, seed)
  train = CountdownProblems(train_size, False, *settings)
  held_out = CountdownProblems(held_out_size, True, *settings)
  for problems in (train, held_out):
    problems.draw(np.random.default_rng(seed))  # checks that the split has problems
  return Task(train, held_out, token_reward=countdown_tokens)
