"""The program that goes into a sandbox: `python -I -S launcher.py TASK READY`.

It reads what to do from a file that is open as TASK, isolates itself, writes a byte to
READY and does it. Where there is no byte the sandbox could not be made. Nothing of pgax is
loaded but the files beside this one, and no package that is installed.

The code is never the first process of its namespace, whose end is that of all others: that
one waits here, dies with its parent, stays in its process group, and can be neither traced
nor signalled by the code, which can undo all of that for itself.
"""

import json
import os
import signal
import sys
import types
from collections.abc import Callable
from typing import Any


def _load_neighbours() -> None:
  """Lets files beside this one be imported by their names, without importing pgax."""
  for name in ("pgax", "pgax.sandbox"):
    sys.modules[name] = types.ModuleType(name)
  here = os.path.dirname(os.path.abspath(__file__))
  sys.modules["pgax.sandbox"].__path__ = [here]


def _program(task: dict[str, Any]) -> Callable[[], None]:
  """What to do inside; whatever it takes of pgax is loaded here, while it can be read."""
  match task["role"]:
    case "script":
      return lambda: _run_script(task["code"])
    case "candidate":
      from pgax.sandbox import candidate

      return lambda: candidate.serve(task["code"], *task["fds"])
    case _:
      from pgax.sandbox import isolation, judge

      def run() -> None:
        isolation.hide_memory()
        judge.judge(task["tests"], *task["fds"])

      return run


def _run_script(code: str) -> None:
  namespace = types.ModuleType("__main__")
  sys.modules["__main__"] = namespace
  sys.argv = ["solution.py"]
  exec(compile(code, "<solution>", "exec"), vars(namespace))


def _fork(isolation: types.ModuleType, fds: list[int]) -> None:
  """Returns in a new process; the calling one waits for its end, and ends like it."""
  process = os.fork()
  if not process:
    isolation.die_with_parent()
    return
  for fd in fds:
    os.close(fd)  # or the other side would never see the end of it
  # The first process of a namespace gets no signal from inside that it does not handle.
  signal.signal(signal.SIGINT, signal.SIG_DFL)
  isolation.hide_memory()
  isolation.drop_privileges(-1)
  isolation.die_with_parent()  # should other privileges have cleared it
  while True:
    ended, status = os.wait()  # orphans end here too
    if ended == process:
      os._exit(os.waitstatus_to_exitcode(status) % 256)


def main() -> None:
  """Isolates the process, and runs what it is given."""
  _load_neighbours()
  from pgax.sandbox import isolation

  with os.fdopen(int(sys.argv[1])) as file:
    task = json.load(file)
  ready = int(sys.argv[2])
  fds = [ready, *task.get("fds", [])]
  try:
    program = _program(task)
    isolation.die_with_parent()
    limits, user, read_all = task["limits"], os.getpid(), False
    if task["level"] == "namespaces":
      # Two that wait are of the same user, where there is a user namespace.
      limits["processes"] += 2 * isolation.unshare()
      _fork(isolation, fds)
      isolation.change_root(task["folder"], limits["file_size"])
    elif task["level"] == "bubblewrap":
      limits["processes"] += 1
      user = -1  # which it allows nobody to change
      os.chdir(isolation.FOLDER)
    else:
      os.chdir(task["folder"])
      if os.geteuid() == 0:
        os.chmod(".", 0o777)
      read_all = not isolation.readable_by_others(os.__file__)
    _fork(isolation, fds)
    isolation.set_limits(**limits)
    isolation.drop_privileges(user, read_all)
    isolation.die_with_parent()  # becoming another user has cleared it
    # From here on the code is to blame: said once, before it can say anything itself.
    os.write(ready, b"1")
    os.close(ready)
  except BaseException as error:
    print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
    os._exit(1)
  _finish(program)


def _finish(program: Callable[[], None]) -> None:
  """Ends as Python does, but with no more than a status."""
  status = 0
  try:
    program()
  except SystemExit as error:
    status = error.code if isinstance(error.code, int) else int(error.code is not None)
  except BaseException as error:
    print(f"{type(error).__name__}: {error}"[:500], file=sys.stderr)
    status = 1
  try:
    sys.stdout.flush()
    sys.stderr.flush()
  except BaseException:
    status = status or 1
  os._exit(status % 256)


if __name__ == "__main__":
  main()
