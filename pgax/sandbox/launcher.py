"""The program that enters a sandbox: `python -I -S launcher.py TASK READY`.

TASK and READY are file descriptors. The program reads its task from TASK, isolates itself,
writes one byte to READY and runs the task. Without that byte, the sandbox could not be
created. The program imports neither installed packages nor any part of pgax except the
files beside it.

The tested code never runs in the first process of its namespace, because all other
processes end with that one. The first process waits here, dies with its parent and stays in
its process group. The tested code can undo all of this for itself, but it can neither trace
nor signal the first process.
"""

import json
import os
import signal
import sys
import types
from collections.abc import Callable
from typing import Any


def _make_neighbors_importable() -> None:
  """Makes the files beside this one importable by name without importing pgax."""
  for name in ("pgax", "pgax.sandbox"):
    sys.modules[name] = types.ModuleType(name)
  here = os.path.dirname(os.path.abspath(__file__))
  sys.modules["pgax.sandbox"].__path__ = [here]


def _program(task: dict[str, Any]) -> Callable[[], None]:
  """Returns the task as a function; imports what it needs while files are readable."""
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
  """Returns in a new process; the caller waits for it and exits with its status."""
  process = os.fork()
  if not process:
    isolation.die_with_parent()
    return
  for fd in fds:
    os.close(fd)  # otherwise the other side would never read an end of file
  # The first process of a namespace receives only those signals that it handles.
  signal.signal(signal.SIGINT, signal.SIG_DFL)
  isolation.hide_memory()
  isolation.drop_privileges(-1)
  isolation.die_with_parent()  # a change of privileges clears this setting
  while True:
    ended, status = os.wait()  # this process adopts orphans too
    if ended == process:
      os._exit(os.waitstatus_to_exitcode(status) % 256)


def main() -> None:
  """Isolates the process and runs its task."""
  _make_neighbors_importable()
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
      # In a user namespace, the two waiting processes belong to the same user.
      limits["processes"] += 2 * isolation.unshare()
      _fork(isolation, fds)
      isolation.change_root(task["folder"], limits["file_size"])
    elif task["level"] == "bubblewrap":
      limits["processes"] += 1
      user = -1  # bubblewrap does not allow changing the user
      os.chdir(isolation.FOLDER)
    else:
      os.chdir(task["folder"])
      if os.geteuid() == 0:
        os.chmod(".", 0o777)
      read_all = not isolation.readable_by_others(os.__file__)
    _fork(isolation, fds)
    isolation.set_limits(**limits)
    isolation.drop_privileges(user, read_all)
    isolation.die_with_parent()  # becoming another user clears this setting
    # Failures after this byte are the fault of the tested code, which has not run yet.
    os.write(ready, b"1")
    os.close(ready)
  except BaseException as error:
    print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
    os._exit(1)
  _finish(program)


def _finish(program: Callable[[], None]) -> None:
  """Runs the task and exits with its status, without any cleanup."""
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
