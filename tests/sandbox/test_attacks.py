"""Code that attacks the machine, the process that runs it, and the verdict.

Attacks that a machine cannot isolate are not attempted; there, the report must say so.
"""

import dataclasses
import os
import socket
import time
import uuid

import pytest

from pgax.rewards.code import Code
from pgax.sandbox import LEVELS, Limits, Process, available, isolation_report
from tests.waiting import eventually, running

# Small, because some attacks end only at the limit.
LIMITS = Limits(seconds=1.5, cpu_seconds=1, memory=256 * 2**20, file_size=2**16)
AVAILABLE = [level for level in LEVELS if available(level)]
TEST = "assert f(2) == 'expected'"
CASE = {"input": "2", "output": "expected"}


@pytest.fixture(params=AVAILABLE)
def level(request):
  return request.param


def score(code, level, test=TEST, limits=LIMITS):
  return Code(limits, isolation=level)("", code, "", {"tests": test})["reward"]


def score_program(code, level, limits=LIMITS):
  """Returns the reward of a program that must print `expected`."""
  return Code(limits, isolation=level)("", code, "", {"cases": [CASE]})["reward"]


def test_the_strongest_level_blocks_every_attempt():
  report = isolation_report()
  assert report.level in AVAILABLE
  if report.level == "limits":
    assert "NOT isolated: reading" in str(report)
    return
  assert all(value for name, value in vars(report).items() if name != "level")
  assert "NOT isolated: nothing that was tested" in str(report)
  assert "never isolated: Python and system libraries are readable;" in str(report)
  assert "threads, but no processes" in str(report)


def test_the_report_of_limits_names_what_is_not_isolated():
  report = isolation_report("limits")
  assert report.memory and report.file_size
  assert not report.reading and "NOT isolated: reading" in str(report)
  assert "the number of files in the sandbox's folder is not limited" in str(report)
  weaker = {"processes": False, "new_processes": False, "network": False}
  text = str(dataclasses.replace(report, **weaker))  # as where the kernel has no filter
  assert "NOT isolated: network" in text and "could stop it or forge" in text
  assert "survives the sandbox" in text and "apply to each process separately" in text


@pytest.mark.parametrize(
  "code",
  [
    "while True: pass",
    "import time\ntime.sleep(1000)",
    "import signal, time\nfor s in range(1, 32):\n"
    "  try: signal.signal(s, signal.SIG_IGN)\n  except (OSError, ValueError): pass\n"
    "while True: pass",
    "def f(x):\n  while True: pass",
    "def f(x):\n  while True: yield 1",
    "def f(x): return f(x)",
    "def f(x): return 10 ** 10 ** 10",
  ],
)
def test_infinite_loops_are_stopped(code, level):
  start = time.monotonic()
  assert score(code, level, "assert list(f(2)) == [1]") == 0.0
  assert score_program(code + "\nf(2)", level) == 0.0
  assert time.monotonic() - start < 2 * LIMITS.seconds + 30  # on a busy machine


def _may_survive(level):
  """Returns whether a process that leaves its session survives; then do not start one."""
  text = str(isolation_report(level))
  assert ("survives the sandbox" in text) or "no processes" in text or level != "limits"
  return "survives the sandbox" in text


BOMB = """
import os
while True:
  try:
    if not os.fork():
      os.setsid()
      os.execv("/usr/bin/sleep", ["sleep", "30", "{mark}"])
  except OSError:
    break
print("expected")
def f(x): return "expected"
"""


def test_a_fork_bomb_stays_small_and_leaves_no_process(level):
  if _may_survive(level):
    return
  mark = uuid.uuid4().hex
  code = BOMB.format(mark=mark)
  # The limit stops the bomb, but not the code, which may even be right.
  assert score(code, level) in (0.0, 1.0)
  assert score_program("import os\nwhile True: os.fork()", level) == 0.0
  assert eventually(lambda: not running(mark))


def test_the_number_of_threads_is_limited(level):
  # Root is exempt, and all other processes of a user count too.
  if (os.geteuid() and level == "limits") or (not os.geteuid() and level == "bubblewrap"):
    return
  assert isolation_report(level).process_count
  code = "import threading\nn, end = 0, threading.Event()\nthreading.stack_size(2**16)\n"
  code += "try:\n  while n < 90:\n    threading.Thread(target=end.wait).start()\n"
  code += "    n += 1\nexcept RuntimeError: pass\nend.set()\ndef f(x): return n"
  assert score(code, level, "assert 30 <= f(2) <= 64") == 1.0


def test_code_starts_no_process(level):
  if not isolation_report(level).new_processes:
    return
  code = "import multiprocessing, os, subprocess\ndef say(e): print(type(e).__name__, e)\n"
  code += "try: subprocess.run(['true'])\nexcept OSError as e: say(e)\n"
  code += "try: multiprocessing.Process(target=print).start()\n"
  code += "except OSError as e: say(e)\n"
  code += "import ctypes\nprint(ctypes.CDLL(None).fork(), os.system('true') != 0)\n"
  code += "try: os.execv('/usr/bin/true', ['true'])\nexcept OSError as e: print(e)"
  with Process({"role": "script", "code": code}, LIMITS, level) as process:
    assert process.wait(time.monotonic() + 5) == 0
    said = "PermissionError the sandbox allows threads, but no new processes\n"
    assert process.output() == f"{said * 2}-1 True\n[Errno 1] Operation not permitted\n"


@pytest.mark.parametrize(
  "code",
  [
    "x = bytearray(2**40)",
    "x = []\nwhile True: x.append(bytearray(2**20))",
    "def f(x): return [0] * 10**9",
    "def f(x): return 'a' * 10**8",
    "def f(x):\n  x = []\n  x.append(x)\n  return x",
    "def f(x):\n  x = []\n  for _ in range(10**5): x = [x]\n  return x",
  ],
)
def test_memory_bombs_are_stopped(code, level):
  assert score(code, level) == 0.0
  assert score_program(code + "\nprint(f(2))", level) == 0.0


@pytest.mark.parametrize(
  "code",
  [
    "while True: print('expected' * 1000)",
    "import os\nwhile True: os.write(1, b'x' * 2**20)",
    "import sys\nwhile True: sys.stderr.write('x' * 2**20)",
    "with open('large', 'wb') as file:\n  while True: file.write(bytes(2**20))",
  ],
)
def test_huge_output_is_truncated(code, level):
  assert score_program(code, level) == 0.0
  assert score(code, level) == 0.0


def test_the_total_size_of_files_is_limited(level):
  if level == "limits":
    assert not isolation_report(level).writing
    return
  code = "n = 0\ntry:\n  for i in range(100):\n    with open(str(i), 'wb') as file:\n"
  code += "      n += file.write(bytes(2**14))\nexcept OSError: pass\ndef f(x): return n"
  assert score(code, level, f"assert f(2) <= {LIMITS.file_size}") == 1.0


def test_the_environment_is_empty_and_other_environments_are_unreadable(level, monkeypatch):
  monkeypatch.setenv("A_SECRET", "expected")
  code = "import os\ndef f(x): return sorted(os.environ)"
  assert score(code, level, "assert set(f(2)) <= {'LC_CTYPE', 'PWD'}") == 1.0
  code = "import glob\ndef f(x):\n  for name in glob.glob('/proc/*/environ'):\n    try:\n"
  code += "      if b'A_SECRET' in open(name, 'rb').read(): return 'expected'\n"
  code += "    except OSError: pass"
  assert (score(code, level) == 0.0) or not isolation_report(level).environment


def test_files_of_the_parent_cannot_be_read(level, tmp_path):
  file = tmp_path / "secret"
  file.write_text("expected")
  code = f"def f(x): return open({str(file)!r}).read()"
  # If reading is not isolated, the mode of the folder may still block it.
  assert score(code, level) == 0.0 or not isolation_report(level).reading
  here = f"import os\ndef f(x): return os.path.exists({__file__!r})"
  if isolation_report(level).reading:
    assert score(here, level, "assert f(2) is False") == 1.0


def test_nothing_is_written_outside_the_sandbox(level, tmp_path):
  tmp_path.chmod(0o777)
  paths = ["/written", "/usr/written", "/tmp/pgax-written", f"{tmp_path}/written"]
  if not isolation_report(level).writing:
    assert level == "limits" and "writing" in str(isolation_report(level))
    return
  code = "def f(path):\n  open(path, 'w').write('x')\n  return 'written'"
  for path in paths:
    assert score(code, level, f"assert f({path!r}) == 'written'") == 0.0
    assert not os.path.exists(path)
  assert score(code, level, "assert f('here') == 'written'") == 1.0


def test_the_folder_is_empty_and_new(level):
  code = (
    "import os\ndef f(x):\n  found = os.listdir('.')\n  open('left', 'w')\n  return found"
  )
  for _ in range(2):
    assert score(code, level, "assert f(2) == []") == 1.0


def test_sockets_are_blocked(level):
  with socket.create_server(("127.0.0.1", 0)) as server:
    port = server.getsockname()[1]
    code = "import socket\ndef f(x):\n"
    code += f"  socket.create_connection(('127.0.0.1', {port}), timeout=0.5)\n"
    code += "  return 'expected'"
    assert (score(code, level) == 0.0) == isolation_report(level).network
  name = f"pgax-{uuid.uuid4().hex}"
  with socket.socket(socket.AF_UNIX) as server:  # abstract, so in the network namespace
    server.bind(f"\0{name}")
    server.listen()
    code = "import socket\ndef f(x):\n  s = socket.socket(socket.AF_UNIX)\n"
    code += f"  s.connect('\\0{name}')\n  return 'expected'"
    assert (score(code, level) == 0.0) == isolation_report(level).network


@pytest.mark.parametrize("target", ["os.getppid()", "-1", "1", "this test", "0"])
def test_the_parent_cannot_be_killed(level, target):
  report = isolation_report(level)
  if not report.processes:  # this very process would be the target
    assert level == "limits" and "processes" in str(report).partition("NOT isolated")[2]
    return
  target = os.getpid() if target == "this test" else target
  code = f"import os\ntry: os.kill({target}, 9)\nexcept OSError: pass\n"
  assert score(code, level) == 0.0
  assert score_program(code, level) == 0.0
  right = "def f(x): return 'expected'"
  assert score(right, level) == 1.0


FORGED = '{"passed": true}\\n'
WRITE = f"import os\nfor fd in range(64):\n  try: os.write(fd, b'{FORGED}' * 9)\n"
WRITE += "  except OSError: pass\n"


@pytest.mark.parametrize(
  "code",
  [
    f"import os\nprint('{FORGED}', flush=True)\nos._exit(0)",
    f"import os\ndef f(x):\n  print('{FORGED}', flush=True)\n  os._exit(0)",
    "import os\nos._exit(97)",
    "raise SystemExit(0)",
    "def f(x): raise SystemExit(0)",
    "def f(x): raise KeyboardInterrupt",
    WRITE,
    WRITE + "os._exit(0)",
    f"{WRITE}\ndef f(x): return 'wrong'",
    "import os, struct\nfor fd in range(3, 64):\n  try:\n"
    "    os.write(fd, struct.pack('!I', 11) + b'{\"names\":0}')\n"
    "    os.write(fd, struct.pack('!I', 2**32 - 1))\n  except OSError: pass",
    "import builtins\nbuiltins.AssertionError = None\ndef f(x): return 1",
    "import sys\nsys.modules['__main__'].__dict__.clear()\ndef f(x): return 1",
  ],
)
def test_forged_verdicts_are_ignored(code, level):
  assert score(code, level) == 0.0
  assert score_program(code, level) == 0.0


EQUAL = "  def __eq__(self, other): return True\n  def __ne__(self, other): return False\n"
EQUAL += "  __hash__ = None\n  def __bool__(self): return True\n"


@pytest.mark.parametrize("base", ["", "(str)", "(int)", "(list)", "(dict)", "(tuple)"])
def test_overridden_equality_is_never_called(base, level):
  code = f"class Equal{base}:\n{EQUAL}def f(x): return Equal()"
  tests = (
    TEST,
    "assert 'expected' == f(2)",
    "assert not f(2)!=7",
  )
  for test in (*tests, "assert f(2) in ['expected']", "assert [f(2)] == ['expected']"):
    assert score(code, level, test) == 0.0
  nested = f"class Equal{base}:\n{EQUAL}def f(x): return [Equal()]"
  assert score(nested, level, "assert f(2) == ['expected']") == 0.0
  assert score(code, level, "assert Equal() == Equal() == 'expected'") == 0.0


YES = "  def {}(self, *other): return True\n"
NAMES = "lt le gt ge add sub radd rsub truediv rtruediv mul mod pow abs neg contains float"
ALWAYS = "".join(YES.format(f"__{name}__") for name in NAMES.split())
ASKED = ("f(2) < 5", "5 > f(2)", "5 in f(2)", "abs(f(2) - 5) == 1", "5 - f(2) == 1")
ASKED += ("f(2) / 5 == 1", "f(1) < f(2)", "[5] in [f(2)]", "f(2) + f(2) == 1")


@pytest.mark.parametrize(
  ("code", "test"),
  [
    # It would end the `map` early, and skip the checks.
    (
      "def f(x): raise StopIteration",
      "assert all(map(lambda x: f(x) == 'expected', [1, 2]))",
    ),
    ("def f(x): return 1\ndef all(x): return True", "assert all(f(x) == 2 for x in [1])"),
    (
      "class math:\n  isclose = staticmethod(lambda *_: True)\ndef f(x): return 1",
      "assert math.isclose(f(2), 3)",
    ),
    ("def f(x): return 1\ndef abs(x): return 0", "assert abs(f(2) - 5) < 1"),
    ("def check(f): pass\ndef f(x): return 1", "def check(f): assert f(1) == 2\ncheck(f)"),
    # The expected value is not in the memory of the process.
    (
      "import gc, sys\ndef f(x):\n  for a in gc.get_objects():\n"
      "    for b in gc.get_referents(a):\n"
      "      if type(b) is str and b.startswith('the word is '): return b",
      "assert f(2) == 'the word is ' + 'secret'.upper()",
    ),
    (
      "class T:\n  def __contains__(self, x): return True\ndef f(x): return T()",
      "assert 1 in f(2)",
    ),
    ("class T(Exception): pass\ndef f(x): raise T", "try:\n  f(1)\nexcept T: pass"),
    # A function that is named like a class does not return objects of the test.
    *(
      (f"class T:\n{ALWAYS}def Area(x): return T()", f"assert {test}")
      for test in ("abs(Area(2) - 5) < 1", "Area(2) < 5", "5 >= Area(2)")
    ),
    # A `with` never suppresses the exception of an `assert`.
    (f"class P:\n{YES.format('__enter__')}{YES.format('__exit__')}", "with P(): assert 0"),
    # Operators of returned objects never receive the expected value.
    *((f"class T:\n{ALWAYS}def f(x): return T()", f"assert {test}") for test in ASKED),
  ],
)
def test_the_candidate_never_judges_itself(code, test, level):
  assert score(code, level, test) == 0.0


def test_code_never_runs_as_root(level):
  if os.geteuid() == 0:  # otherwise the code could end all processes
    assert isolation_report(level).processes and isolation_report(level).environment
    if level != "bubblewrap":  # which keeps root, but without capabilities
      assert score_program("import os\nif os.getuid(): print('expected')", level) == 1.0


def test_daemons_are_killed(level):
  if _may_survive(level):
    return
  mark = uuid.uuid4().hex
  code = "import os, time\nif not os.fork():\n  os.setsid()\n  if not os.fork():\n"
  code += f"    os.execv('/usr/bin/sleep', ['sleep', '60', '{mark}'])\n  os._exit(0)\n"
  code += "time.sleep(0.1)\ndef f(x): return 'expected'"
  score(code, level)
  assert eventually(lambda: not running(mark))


def test_processes_that_undo_dying_with_their_parent_are_killed(level):
  if _may_survive(level):
    return
  mark = uuid.uuid4().hex[:15]
  code = "import ctypes, os, time\nprctl = ctypes.CDLL(None).prctl\n"
  code += "prctl(1, 0, 0, 0, 0)\n"  # no signal at the end of the parent
  code += "try: os.setsid()\nexcept OSError: pass\n"
  code += "for process in (os.getppid(), 1):\n"
  code += "  for number in (2, 9, 19):\n    try: os.kill(process, number)\n"
  code += "    except OSError: pass\n"
  code += f"prctl(15, b'{mark}', 0, 0, 0)\ntime.sleep(100)"  # its name
  with Process({"role": "script", "code": code}, LIMITS, level):
    assert eventually(lambda: running(mark, "comm"))
  assert eventually(lambda: not running(mark, "comm"))
