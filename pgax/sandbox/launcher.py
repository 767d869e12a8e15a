"""The program that enters a sandbox: `python -I -S launcher.py TASK READY`.

TASK and READY are file descriptors. The program reads its task from TASK, isolates itself,
writes one byte to READY and runs the task. Without that byte, the sandbox could not be
created. The program imports neither installed packages nor any part of pgax except the
files beside it.

The tested code never runs in the first process of its namespace, because all other
processes end with that one. The first process waits here, dies with its parent and stays in
its process group. The tested code can undo all of this for itself, but it can neither trace
nor signal the first process.

A program that reads standard input runs as `python solution.py` would run it, as nearly as
possible: in the main module, with the builtins that `site` adds, and ended by the
interpreter, which waits for threads, calls what `atexit` registered and flushes.
"""

# Only modules that the interpreter has loaded or that cost next to nothing: each sandbox
# pays for them. `typing` and `signal` would double the time of a short program.
import _signal as signal
import marshal
import os
import sys
import types


def _make_neighbors_importable() -> None:
  """Makes the files beside this one importable by name without importing pgax."""
  for name in ("pgax", "pgax.sandbox"):
    sys.modules[name] = types.ModuleType(name)
  here = os.path.dirname(os.path.abspath(__file__))
  sys.modules["pgax.sandbox"].__path__ = [here]


def _server(task: dict) -> types.FunctionType | None:
  """Returns the task as a function; imports what it needs while files are readable.

  A program that reads standard input is none: it runs in the main module.
  """
  match task["role"]:
    case "script":
      return None
    case "candidate":
      from pgax.sandbox import candidate

      return lambda: candidate.serve(task["code"], *task["fds"])
    case _:
      from pgax.sandbox import isolation, judge

      def run() -> None:
        isolation.hide_memory()
        judge.judge(task["tests"], *task["fds"])

      return run


class _Source:
  """A loader of the main module, so that `inspect` and tracebacks find its source."""

  def __init__(self, code: str):
    self._code = code

  def get_source(self, name: str) -> str:
    return self._code


def _source(code: str) -> bytes:
  """Writes a program to `solution.py`, which it may read or import, and returns its bytes.

  A mark of the encoding counts in bytes alone.
  """
  data = code.encode("utf-8", "surrogatepass")
  try:
    with open("solution.py", "wb") as file:
      file.write(data)
  except OSError:
    pass  # larger than any file may be here
  return data


def _new_main(code: str) -> dict:
  """Replaces the main module and returns the variables of the new one."""
  for name in [name for name in sys.modules if name.partition(".")[0] == "pgax"]:
    del sys.modules[name]
  main = types.ModuleType("__main__")
  main.__file__ = os.path.join(os.getcwd(), "solution.py")
  main.__loader__, main.__builtins__ = _Source(code), sys.modules["builtins"]
  main.__annotations__, main.__cached__ = {}, None
  sys.modules["__main__"] = main
  sys.argv, sys.path[:0] = ["solution.py"], [os.getcwd()]
  return vars(main)


def _add_builtins() -> None:
  """Adds the builtins that `site` would, such as `exit`, without the installed packages."""
  import site

  site.setquit()
  site.setcopyright()
  site.sethelper()


def _refuse_processes() -> None:
  """Has Python say clearly that processes are refused, as the kernel does by a number."""

  def refuse(*_: object) -> None:
    raise PermissionError("the sandbox allows threads, but no new processes")

  import _posixsubprocess

  os.fork = os.forkpty = os.posix_spawn = os.posix_spawnp = refuse
  _posixsubprocess.fork_exec = refuse


def _fork(isolation: types.ModuleType, fds: list[int], kept: int = 0) -> None:
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
  isolation.drop_privileges(-1, kept)
  isolation.die_with_parent()  # a change of privileges clears this setting
  while True:
    ended, status = os.wait()  # this process adopts orphans too
    if ended == process:
      os._exit(os.waitstatus_to_exitcode(status) % 256)


def _isolate(task: dict, fds: list[int]) -> None:
  """Enters the sandbox; returns in a process that has no rights left."""
  from pgax.sandbox import isolation, system_calls

  isolation.die_with_parent()
  system_calls.leave_keyring()
  limits, user, kept, to_kill = task["limits"], os.getpid(), 0, 0
  if task["level"] == "namespaces":
    # In a user namespace, the two waiting processes belong to the same user.
    limits["processes"] += 2 * isolation.unshare()
    _fork(isolation, fds)
    isolation.change_root(limits["file_size"])
  elif task["level"] == "bubblewrap":
    limits["processes"] += 1
    user = -1  # bubblewrap does not allow changing the user
    isolation.finish_bubblewrap(limits["file_size"])
  else:
    os.chdir(task["folder"])
    limits["processes"] += isolation.other_tasks()
    if os.geteuid() == 0:
      os.chmod(".", 0o777)
    kept = 0 if isolation.readable_by_others(os.__file__) else isolation.READ_ALL
    to_kill = isolation.KILL  # without a namespace, whose first process ends all others
  _fork(isolation, fds, to_kill)
  isolation.set_limits(**limits)
  isolation.drop_privileges(user, kept)
  isolation.die_with_parent()  # becoming another user clears this setting
  if system_calls.restrict_calls():
    _refuse_processes()


def _enter() -> tuple[dict, types.FunctionType | None]:
  """Isolates this process; returns the task and what runs it."""
  _make_neighbors_importable()
  with os.fdopen(int(sys.argv[1]), "rb") as file:
    task = marshal.load(file)
  ready = int(sys.argv[2])
  fds = [ready, *task.get("fds", [])]
  try:
    server = _server(task)
    _add_builtins()
    _isolate(task, fds)
    # Failures after this byte are the fault of the tested code, which has not run yet.
    os.write(ready, b"1")
    os.close(ready)
  except BaseException as error:
    print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
    os._exit(1)
  return task, server


def _serve(server: types.FunctionType) -> None:
  """Answers until the other side ends, and exits without any cleanup."""
  status = 0
  try:
    server()
  except BaseException as error:
    print(f"{type(error).__name__}: {error}"[:500], file=sys.stderr)
    status = 1
  os._exit(status)


if __name__ == "__main__":
  _task, _function = _enter()
  if _function:
    _serve(_function)
  # Here, and not in a function, so that recursion is as deep as in a program of its own.
  exec(compile(_source(_task["code"]), "solution.py", "exec"), _new_main(_task["code"]))
