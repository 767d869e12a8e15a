"""Runs Python sources against tests and against pairs of input and output."""

import json
import tempfile
import time
from collections.abc import Sequence

from pgax.sandbox.process import Level, Limits, Process, pipe

# Extra time to learn whether the candidate's sandbox was created at all, in seconds.
_GRACE_SECONDS = 0.2


def run_tests(
  code: str, tests: Sequence[str], limits: Limits, level: Level, deadline: float
) -> int:
  """Counts the tests that pass; a test that does not return ends the count.

  The tests run in one sandbox and the code in another. The functions of the code are remote
  calls, so the code never receives the expected values.

  Args:
    code: source of the tested code.
    tests: sources of the tests; each passes if it runs to its end.
    limits: resource limits of each of the two processes.
    level: isolation level of both processes.
    deadline: time of the monotonic clock at which the processes are killed, in seconds.

  Returns:
    Number of tests that pass.

  Raises:
    ValueError: if the tests themselves are at fault.
    SandboxError: if a sandbox cannot be created.
  """
  with tempfile.TemporaryFile() as verdicts:
    # The judge writes requests to one pipe; the candidate responds on the other.
    with pipe() as (requests_in, requests_out), pipe() as (responses_in, responses_out):
      judge_fds = [requests_out, responses_in, verdicts.fileno()]
      candidate_fds = [requests_in, responses_out]
      task = {"role": "judge", "tests": list(tests), "fds": judge_fds}
      judge = Process(task, limits, level, pass_fds=judge_fds)
      try:
        task = {"role": "candidate", "code": code, "fds": candidate_fds}
        candidate = Process(task, limits, level, pass_fds=candidate_fds)
      except BaseException:
        judge.close()
        raise
    with judge, candidate:
      judge.wait(deadline)
      verdicts.seek(0)
      rows = [json.loads(line) for line in verdicts.read().splitlines()]
      if not all(row.get("passed") for row in rows) or len(rows) < len(tests):
        # Raises SandboxError if the code is not to blame.
        candidate.wait(time.monotonic() + _GRACE_SECONDS)
  for row in rows:
    if "unsupported" in row:
      raise ValueError(row["unsupported"])
  return sum(row["passed"] for row in rows)


def run_case(
  code: str, stdin: str, expected: str, limits: Limits, level: Level, deadline: float
) -> bool:
  """Returns whether a program ends without an error and prints the expected output.

  White space at the ends of lines and empty lines at the end are ignored.

  Args:
    code: source of the program.
    stdin: text of the standard input.
    expected: expected standard output.
    limits: resource limits of the process.
    level: isolation level of the process.
    deadline: time of the monotonic clock at which the process is killed, in seconds.

  Returns:
    Whether the program passes; False if the deadline is over before it starts.

  Raises:
    SandboxError: if the sandbox cannot be created.
  """
  if time.monotonic() >= deadline:
    return False
  task = {"role": "script", "code": code}
  with Process(task, limits, level, stdin=stdin) as process:
    succeeded = process.wait(deadline) == 0
    return succeeded and _lines(process.output()) == _lines(expected)


def _lines(text: str) -> list[str]:
  return [line.rstrip() for line in text.rstrip().split("\n")]
