"""Processes and limits of sandboxes."""

import subprocess
import sys
import time
import uuid

import pytest

from pgax.sandbox import (
  LEVELS,
  Limits,
  Process,
  SandboxError,
  available,
  best_level,
  run_tests,
)
from tests.waiting import eventually, running


def test_a_sandbox_that_cannot_be_created_raises_sandbox_error():
  task = {"role": "script", "code": ""}
  raises = pytest.raises(SandboxError, match="could not be created in time")
  with Process(task, Limits(), "limits") as process, raises:
    process.wait(time.monotonic())  # before the process can run anything


@pytest.mark.parametrize("name", ["seconds", "memory", "processes"])
def test_limits_must_be_positive(name):
  with pytest.raises(ValueError, match=f"{name} is 0; it must be positive"):
    Limits(**{name: 0})


@pytest.mark.parametrize(
  "code",
  [
    "import threading, time\nthreading.Thread(target=time.sleep, args=(60,)).start()",
    "import atexit, time\natexit.register(time.sleep, 60)",
    "import __main__, sys\nassert __main__ is sys.modules[__name__]",
    "if __name__ == '__main__': input()",
    "import sys\nsys.stdout.close()",
    "print('noise' * 1000)",
  ],
)
def test_what_code_does_at_its_top_level_does_not_fail_it(code):
  limits, tests = Limits(seconds=10.0), ["assert f(2) == 3"]
  code, deadline = f"{code}\ndef f(x): return x + 1", time.monotonic() + limits.seconds
  assert run_tests(code, tests, limits, best_level(), deadline) == 1


@pytest.mark.parametrize("level", [level for level in LEVELS if available(level)])
def test_code_ends_when_its_scorer_is_killed(level):
  mark = uuid.uuid4().hex[:15]
  code = f"import ctypes, time\nctypes.CDLL(None).prctl(15, b'{mark}', 0, 0, 0)\n"
  code += "time.sleep(100)"
  scorer = "import time\nfrom pgax.sandbox import *\nrun_case("
  scorer += f"{code!r}, '', '', Limits(seconds=90), {level!r}, time.monotonic() + 90)"
  with subprocess.Popen([sys.executable, "-c", scorer]) as process:
    assert eventually(lambda: running(mark, "comm"))
    process.kill()
  assert eventually(lambda: not running(mark, "comm"))
