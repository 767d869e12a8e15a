"""Programs in processes of their own, forked from one that has imported the libraries.

To import them takes seconds, and what most programs do in a test takes less. Each program
is still found, run and ended as by `python -m`, with arguments, streams and a status of its
own. Devices are not touched before the fork: JAX starts in each process anew.
"""

import gc
import json
import os
import runpy
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

# For the programs, which find them imported.
import tensorboardX  # noqa: F401

import experiments.config_flag
import experiments.program  # noqa: F401
import pgax.report  # noqa: F401

ROOT = Path(__file__).parents[1]


class Programs:
  """Runs programs; see `open_programs`."""

  def __init__(self, server: subprocess.Popen, folder: Path):
    self._server, self._folder = server, folder

  def __call__(
    self, module: str, *arguments: object, text: str = "", path: str = ""
  ) -> subprocess.CompletedProcess:
    """What `python -m MODULE ARGUMENTS` does with that text as its input.

    Modules are found in the folder `path` too, if there is one.
    """
    paths = [self._folder / name for name in ("in", "out", "err")]
    paths[0].write_text(text)
    job = {"module": module, "arguments": list(map(str, arguments)), "path": str(path)}
    self._server.stdin.write(json.dumps(job | {"paths": list(map(str, paths))}) + "\n")
    self._server.stdin.flush()
    code = int(self._server.stdout.readline())
    return subprocess.CompletedProcess(
      [module, *arguments], code, *(path.read_text() for path in paths[1:])
    )


@contextmanager
def open_programs() -> Iterator[Programs]:
  """The process that others are forked from, while it is open."""
  command = [sys.executable, "-m", "tests.forked"]
  with (
    TemporaryDirectory() as folder,
    subprocess.Popen(
      command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server,
  ):
    yield Programs(server, Path(folder))
    server.stdin.close()  # which ends it


def _serve() -> None:
  gc.freeze()  # a collection would look at everything, and copy it in each process
  # Read from copies, so that a program finds its own streams untouched.
  with os.fdopen(os.dup(0), "r") as jobs, os.fdopen(os.dup(1), "w") as answers:
    for line in jobs:
      job = json.loads(line)
      process = os.fork()
      if not process:
        break
      _, status = os.waitpid(process, 0)
      print(os.waitstatus_to_exitcode(status), file=answers, flush=True)
    else:
      return
  for number, path in enumerate(job["paths"]):
    file = os.open(path, os.O_RDWR | os.O_CREAT | (os.O_TRUNC if number else 0))
    os.dup2(file, number)
    os.close(file)
  sys.path += [job["path"]] * bool(job["path"])
  sys.argv[1:] = job["arguments"]
  runpy.run_module(job["module"], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
  _serve()


def last_of_each(*arguments):
  """Arguments of a command; of those of the same flag, the last one."""
  return list({argument.partition("=")[0]: argument for argument in arguments}.values())
