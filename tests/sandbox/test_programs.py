"""Programs that read standard input are judged as plain Python runs them."""

import subprocess
import sys
import time

import pytest

from pgax.sandbox import Limits, available, best_level, run_case
from tests.sandbox.programs import PROGRAMS, SUM

LIMITS = Limits(seconds=10.0)


def passes(code, stdin, expected, level=None):
  deadline = time.monotonic() + LIMITS.seconds
  return run_case(code, stdin, expected, LIMITS, level or best_level(), deadline)


def run_plainly(code, stdin, folder):
  (folder / "solution.py").write_text(code, encoding="utf-8")
  (folder / "input").write_bytes(stdin.encode())
  command = [sys.executable, "-E", "-s", "-X", "utf8", "solution.py"]
  with open(folder / "input", "rb") as file:
    return subprocess.run(command, stdin=file, capture_output=True, cwd=folder, timeout=60)


def wrong_outputs(text):
  """Returns outputs that differ from the right one by little."""
  yield text + "1"
  yield text.rstrip()[:-1] if text.strip() else "0"


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_are_judged_as_plain_python_runs_them(name, tmp_path):
  code, stdin = PROGRAMS[name]
  plain = run_plainly(code, stdin, tmp_path)
  output = plain.stdout.decode(errors="replace")
  assert passes(code, stdin, output) == (plain.returncode == 0), plain.stderr
  if plain.returncode == 0:
    wrong = next(wrong_outputs(output)) if len(name) % 2 else [*wrong_outputs(output)][1]
    assert not passes(code, stdin, wrong)


def test_the_programs_end_in_both_ways(tmp_path):
  statuses = [run_plainly(*PROGRAMS[n], tmp_path).returncode for n in ("exit", "exit 3")]
  assert statuses == [0, 3]


@pytest.mark.parametrize("level", ["bubblewrap", "namespaces", "limits"])
def test_levels_run_the_same_programs(level):
  if not available(level):
    return
  names = ("dev stdin", "exit", "thread", "atexit", "threads", "large stack", "raises")
  expected = ("['3', '1', '2', '3']", "1", "1\nend", "start\nend", "780", "100000", None)
  for name, text in zip(names, expected, strict=True):
    assert passes(*PROGRAMS[name], text or "1", level) == (text is not None), name


@pytest.mark.parametrize("level", ["bubblewrap", "namespaces", "limits"])
def test_the_input_may_exceed_the_limit_on_files(level):
  if not available(level):
    return
  limits = Limits(seconds=10.0, file_size=2**20)
  stdin, code = "x" * 3 * 2**20, "print(len(input()), len(open('/dev/stdin').read()))"
  deadline = time.monotonic() + limits.seconds
  assert run_case(code, stdin, f"{len(stdin)} {len(stdin)}", limits, level, deadline)


def test_output_beyond_the_limit_fails():
  code = "print('x' * 2000)"
  limits = Limits(seconds=10.0, file_size=1000)
  deadline = time.monotonic() + limits.seconds
  assert not run_case(code, SUM, "x" * 1000, limits, best_level(), deadline)
  assert passes(code, SUM, "x" * 2000)
