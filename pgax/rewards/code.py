"""Reward for code: does model-written Python pass the given tests?"""

import dataclasses
import json
import re
import tempfile
import textwrap
import time
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pgax.sandbox.report import isolation_report
from pgax.sandbox.process import (
  Level,
  Limits,
  Process,
  SandboxError,
  available,
  best_level,
  pipe,
)
from pgax.rewards.fences import last_block
from pgax.types import NO_METADATA

_LABELS = ("python", "py", "python3", "py3", "ipython")
# The last pair, also where the text has spoken of the tag before.
_TAG = re.compile(r"<answer>((?:(?!<answer>).)*?)</answer>", re.DOTALL)


class IsolationWarning(UserWarning):
  """Model-written code runs with less isolation than this library can give elsewhere."""


def extract_code(completion: str) -> str:
  """The code of a completion.

  Args:
    completion: text with code in it.

  Returns:
    The last fenced block of Python, or else the last one without a label, of the last
    `<answer>` if there is one; without any, all of it.
  """
  text = (_TAG.findall(completion) or [completion])[-1]
  block = last_block(text, _LABELS)
  return text if block is None else textwrap.dedent(block)


@dataclasses.dataclass(frozen=True)
class Code:
  """Runs the Python of a completion against the tests of its problem, in sandboxes.

  The metadata of a problem holds one or both of

  - `tests`: a source, or several. Each passes if it runs to its end, as `assert add(1, 2)
    == 3` does. Tests run in a process of their own where no code of the completion does:
    its functions are calls to another process, what they return is plain data, and the
    expected values and the verdict never reach it. So a test can call functions, make
    objects, call their methods, and compare results that are plain data.
  - `cases`: objects with `input` and `output`. Each passes if the code, run as a program
    with that standard input, ends without an error and prints that output; white space at
    the ends of lines, and empty lines at the end, make no difference.

  Without either, the ground truth is a test. What a test can't do fails, or is an error if
  that is seen without what the code gave back:

  - give functions, or objects of classes of its own, as arguments;
  - compare objects of classes of the completion with `==`, as the keys of sets are too;
  - use arithmetic and `<`, and `in` where it can't be iterated over, of an object that is
    no plain data, unless the test itself has made it, as in `V(1) + V(2)`, of a class whose
    name begins with a capital letter: what the code gave back must not judge itself. And
    `<` is of two such objects: a number would be told as what is expected;
  - use a class of the completion in `isinstance` and `except`;
  - have a `with` of an object of the completion keep an exception back, or see it;
  - see in another variable that the code has changed a part of an argument.

  The code has Python's standard library, and no network; `code.isolation_report()` tells
  what it can reach on this machine. A completion that is too slow, too large or dies is
  wrong. One whose tests are at fault, or whose sandbox can't be made, is an error.

  Attributes:
    limits: of each process, and of the time for all tests together; the deadline of a pool
      must be longer.
    partial: whether the reward is the fraction of tests that pass, and not 1.0 for all of
      them and 0.0 otherwise.
    isolation: how the processes are isolated; `auto` takes the strongest level that works,
      and warns where that is none but limits.
  """

  limits: Limits = Limits()
  partial: bool = False
  isolation: Literal["auto", "bubblewrap", "namespaces", "limits"] = "auto"

  def __post_init__(self):
    if self.isolation not in ("auto", "bubblewrap", "namespaces", "limits"):
      raise ValueError(
        f"isolation is {self.isolation!r}; allowed are 'auto', 'bubblewrap', 'namespaces' "
        "and 'limits'"
      )

  def __call__(
    self,
    prompt: str,
    completion: str,
    ground_truth: str,
    metadata: Mapping[str, Any] = NO_METADATA,
  ) -> dict[str, float]:
    """Scores the code of a completion.

    Args:
      prompt: not looked at.
      completion: the code, in a fenced block or alone.
      ground_truth: a test, where the metadata holds none.
      metadata: of the problem; see the class.

    Returns:
      `reward`; `accuracy`, 1.0 if all tests pass; and `passed`, the fraction that does.

    Raises:
      ValueError: if there are no tests, or they can't be run.
      SandboxError: if a sandbox can't be made.
    """
    del prompt
    tests, cases = _tests(ground_truth, metadata)
    code, level = extract_code(completion), self._level()
    until, passed = time.monotonic() + self.limits.seconds, 0
    if tests:
      passed += run_tests(code, tests, self.limits, level, until)
    for index, (given, expected) in enumerate(cases):
      try:
        passed += run_case(code, given, expected, self.limits, level, until)
      except SandboxError:
        if time.monotonic() < until or not (tests or index):
          raise
        break  # those before it were made, and have taken all the time
    fraction = passed / (len(tests) + len(cases))
    right = float(fraction == 1)
    reward = fraction if self.partial else right
    return {"reward": reward, "accuracy": right, "passed": fraction}

  def _level(self) -> Level:
    if self.isolation != "auto":
      if not available(self.isolation):
        raise ValueError(
          f"isolation is {self.isolation!r}, which does not work on this machine; 'auto' "
          f"takes {best_level()!r}"
        )
      return self.isolation
    level = best_level()
    if level == "limits":
      warnings.warn(str(isolation_report(level)), IsolationWarning, stacklevel=3)
    return level


def _tests(
  ground_truth: str, metadata: Mapping[str, Any]
) -> tuple[list[str], list[tuple[str, str]]]:
  """The tests of a problem, and the inputs and outputs of its cases."""
  tests, cases = metadata.get("tests", []), metadata.get("cases", [])
  tests = [tests] if isinstance(tests, str) else list(tests)
  if not tests and not cases and ground_truth.strip():
    tests = [ground_truth]
  try:
    pairs = [(case["input"], case["output"]) for case in cases]
  except (TypeError, KeyError):
    raise ValueError(
      f"cases is {cases!r}; each case has an 'input' and an 'output'"
    ) from None
  texts = [*tests, *(text for pair in pairs for text in pair)]
  if not texts or not all(isinstance(text, str) for text in texts):
    raise ValueError(
      f"the metadata has the keys {sorted(metadata)}, and the ground truth is "
      f"{ground_truth!r}; there must be tests, all of them text"
    )
  return tests, pairs


def run_tests(
  code: str, tests: Sequence[str], limits: Limits, level: Level, until: float
) -> int:
  """Number of tests that pass; the first that does not come back is the last.

  Args:
    code: the tested code.
    tests: sources; see `Code`.
    limits: of each of the two processes.
    level: of their isolation.
    until: time of the monotonic clock at which they are killed.

  Returns:
    How many passed.

  Raises:
    ValueError: if the tests are at fault.
    SandboxError: if a sandbox can't be made.
  """
  with tempfile.TemporaryFile() as verdicts:
    with pipe() as (asked, ask), pipe() as (answered, answer):
      task = {"role": "judge", "tests": list(tests)}
      task["fds"] = [ask, answered, verdicts.fileno()]
      judge = Process(task, limits, level, pass_fds=task["fds"])
      try:
        task = {"role": "candidate", "code": code, "fds": [asked, answer]}
        candidate = Process(task, limits, level, pass_fds=task["fds"])
      except BaseException:
        judge.close()
        raise
    with judge, candidate:
      judge.wait(until)
      verdicts.seek(0)
      rows = [json.loads(line) for line in verdicts.read().splitlines()]
      if not all(row.get("passed") for row in rows) or len(rows) < len(tests):
        # A moment, so that a sandbox that could not be made is not blamed on the code.
        candidate.wait(time.monotonic() + 0.2)
  for row in rows:
    if "unsupported" in row:
      raise ValueError(row["unsupported"])
  return sum(row["passed"] for row in rows)


def run_case(
  code: str, given: str, expected: str, limits: Limits, level: Level, until: float
) -> bool:
  """Whether a program prints what it should; see `run_tests`."""
  if time.monotonic() >= until:
    return False
  task = {"role": "script", "code": code}
  with Process(task, limits, level, stdin=given) as process:
    done = process.wait(until) == 0
    return done and _lines(process.output()) == _lines(expected)


def _lines(text: str) -> list[str]:
  return [line.rstrip() for line in text.rstrip().split("\n")]
