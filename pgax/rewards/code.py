"""Rewards code: does model-written Python pass the given tests?"""

import dataclasses
import re
import textwrap
import time
import warnings
from collections.abc import Mapping
from typing import Any, Literal

from pgax.errors import check_one_of
from pgax.rewards.fences import last_block
from pgax.sandbox import (
  IsolationWarning,
  Level,
  Limits,
  SandboxError,
  available,
  best_level,
  isolation_report,
  run_case,
  run_tests,
)
from pgax.types import NO_METADATA, Metadata

_LABELS = ("python", "py", "python3", "py3", "ipython")
# Matches the last pair of tags even if the text mentions an opening tag before.
_TAG = re.compile(r"<answer>((?:(?!<answer>).)*?)</answer>", re.DOTALL)


def extract_code(completion: str) -> str:
  """Extracts the code of a completion.

  Args:
    completion: text that contains code.

  Returns:
    The last fenced block that is labeled as Python, or else the last one without a label,
    or else the entire text. If there are `<answer>` tags, only the last pair is searched.
  """
  text = (_TAG.findall(completion) or [completion])[-1]
  block = last_block(text, _LABELS)
  return text if block is None else textwrap.dedent(block)


@dataclasses.dataclass(frozen=True)
class Code:
  """Runs the Python code of a completion against the tests of its problem, in sandboxes.

  The metadata of a problem has one or both of

  - `tests`: a source or several sources. A test passes if it runs to its end, like
    `assert add(1, 2) == 3`. Tests run in a process that runs no code of the completion: the
    completion's functions are calls to another process and return plain data, so that
    process never receives the expected values and the verdict. A test can call functions,
    create objects, call their methods, and compare results that are plain data.
  - `cases`: objects with `input` and `output`. A case passes if the code, run as a program
    with that standard input, ends without an error and prints that output. White space at
    the ends of lines and empty lines at the end are ignored.

  If the metadata has neither, the ground truth is a test.

  What the completion returns must be plain data wherever a value of the test decides
  between right and wrong. Plain data are Python's builtin types and, of the standard
  library, those of `collections`, `datetime`, `decimal`, `fractions` and `array`, and
  builtin types themselves, such as `int`. Only
  objects that the test creates, from a class that the completion defines and the tests use
  as a class, are exempt; see `sandbox.usage.classes`.

  Unsupported in tests (the test fails, or raises ValueError if this can be detected without
  what the code returns):

  - passing functions or objects of the test's own classes as arguments, except for
    functions and types of the standard library; iterators are passed as their items;
  - reading what the code prints, and replacing what it reads or calls, as mocks do;
  - comparing other objects of the completion with `==`, also as elements of sets;
  - other objects in arithmetic, in `<`, after `in` unless they can be iterated, and methods
    of theirs that plain data has too, like `startswith`, unless they take no argument and
    return plain data other than a truth value;
  - comparing even exempt objects with plain data, unless their class extends its type;
  - a class of the completion in `except`, and members of its enumerations;
  - a `with` statement in which an object of the completion suppresses or reads an
    exception;
  - reading, through another variable, a change that the code made inside an argument, and
    changing plain data inside one of its objects, as in `Stack().items.append(1)`;
  - coroutines, and what `inspect` says about functions of the completion.

  A test that gives to `eval` what the completion returns runs that as its own code.

  An exempt object answers for itself: if a class is equal to whatever is of its own kind,
  `P(1) == P(2)` passes.

  A program runs and ends as `python solution.py` would. It can start threads, but no
  processes: `subprocess` and `multiprocessing` raise PermissionError.

  The code has Python's standard library and no network. `sandbox.isolation_report()`
  reports what it can reach on this machine. A completion that is too slow, uses too much
  memory or crashes is wrong. Faulty tests, or a sandbox that cannot be created, raise an
  error.

  Attributes:
    limits: limits of each process, and the time of all tests together, which must be
      shorter than the timeout of the pool.
    partial: whether the reward is the fraction of tests that pass; otherwise it is 1.0 if
      all tests pass and 0.0 if not.
    isolation: isolation level of the processes. `auto` selects the strongest level that
      works, and warns if that is `limits`.
  """

  limits: Limits = Limits()
  partial: bool = False
  isolation: Literal["auto", "bubblewrap", "namespaces", "limits"] = "auto"

  def __post_init__(self):
    check_one_of(self, ("auto", "bubblewrap", "namespaces", "limits"), "isolation")

  def __call__(
    self, prompt: str, completion: str, ground_truth: str, metadata: Metadata = NO_METADATA
  ) -> dict[str, float]:
    """Scores the code of a completion.

    `completion` is the code, in a fenced block or alone. `ground_truth` is a test; ignored
    if the metadata has tests or cases. `metadata` has `tests` and `cases` of the problem;
    see the class.

    Returns:
      `reward`; `accuracy`, 1.0 if all tests pass and 0.0 otherwise; and `passed`, the
      fraction of tests that pass.

    Raises:
      ValueError: if there are no tests, or the tests are at fault.
      SandboxError: if a sandbox cannot be created.
    """
    del prompt
    tests, cases = _tests(ground_truth, metadata)
    code, level = extract_code(completion), self._level()
    deadline, passed = time.monotonic() + self.limits.seconds, 0
    if tests:
      passed += run_tests(code, tests, self.limits, level, deadline)
    for index, (stdin, expected) in enumerate(cases):
      try:
        passed += run_case(code, stdin, expected, self.limits, level, deadline)
      except SandboxError:
        if time.monotonic() < deadline or not (tests or index):
          raise
        break  # earlier sandboxes were created, and used up the time
    fraction = passed / (len(tests) + len(cases))
    accuracy = float(fraction == 1)
    reward = fraction if self.partial else accuracy
    return {"reward": reward, "accuracy": accuracy, "passed": fraction}

  def _level(self) -> Level:
    if self.isolation != "auto":
      if not available(self.isolation):
        raise ValueError(
          f"isolation is {self.isolation!r}, which does not work on this machine; 'auto' "
          f"selects {best_level()!r}"
        )
      return self.isolation
    level = best_level()
    if level == "limits":
      warnings.warn(str(isolation_report(level)), IsolationWarning, stacklevel=3)
    return level


def _tests(
  ground_truth: str, metadata: Mapping[str, Any]
) -> tuple[list[str], list[tuple[str, str]]]:
  """Returns the tests of a problem, and the inputs and outputs of its cases."""
  tests, cases = metadata.get("tests", []), metadata.get("cases", [])
  tests = [tests] if isinstance(tests, str) else list(tests)
  if not tests and not cases and ground_truth.strip():
    tests = [ground_truth]
  try:
    pairs = [(case["input"], case["output"]) for case in cases]
  except (TypeError, KeyError):
    raise ValueError(
      f"cases is {cases!r}; each case needs an 'input' and an 'output'"
    ) from None
  texts = [*tests, *(text for pair in pairs for text in pair)]
  if not texts or not all(isinstance(text, str) for text in texts):
    raise ValueError(
      f"the metadata has the keys {sorted(metadata)}, and the ground truth is "
      f"{ground_truth!r}; there must be at least one test, and all tests must be text"
    )
  return tests, pairs
