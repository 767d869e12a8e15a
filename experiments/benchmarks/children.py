"""Starts a process for each library, and asks it for its work in turn."""

import dataclasses
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

from experiments.benchmarks.shape import Shape
from pgax.errors import UserError

ROOT = Path(__file__).parents[2]
# The module of each library. TRL and Tunix need separate environments.
PEERS = {"transformers": "transformers", "trl": "trl", "tunix": "tunix"}


class Child:
  """A `Worker` in a separate process."""

  def __init__(self, name: str, process: subprocess.Popen, log: IO[str]):
    self.name, self._process, self._log = name, process, log

  def build(self, shape: Shape, names: tuple[str, ...], folder: Path) -> dict:
    """Builds work as `Worker.build` does."""
    fields = dataclasses.asdict(shape)
    return self._ask({"shape": fields, "names": names, "folder": str(folder)})

  def call(self, name: str) -> dict:
    """Times a call as `Worker.call` does."""
    return self._ask({"call": name})

  def _ask(self, request: Mapping[str, Any]) -> dict:
    try:
      self._process.stdin.write(json.dumps(request) + "\n")
      self._process.stdin.flush()
      answer = json.loads(self._process.stdout.readline() or "{}")
    except BrokenPipeError:
      answer = {}
    if "done" in answer:
      return answer["done"]
    self._log.seek(0)
    reason = answer.get("error") or f"it ended with status {self._process.wait()}"
    raise UserError(f"{self.name} failed: {reason}\n{self._log.read()[-2000:]}")


def installed_peers(pythons: Mapping[str, str]) -> list[str]:
  """Lists the libraries to compare with: those of this environment, and those given.

  Args:
    pythons: Python interpreters of other environments, by the name of the library.

  Returns:
    Names of `PEERS`.
  """
  return [
    name
    for name, module in PEERS.items()
    if name in pythons or importlib.util.find_spec(module) is not None
  ]


@contextmanager
def open_children(
  names: tuple[str, ...], pythons: Mapping[str, str]
) -> Iterator[dict[str, Child]]:
  """Starts the processes; they end with the context, and use the cores of this one.

  Args:
    names: names of the libraries.
    pythons: Python interpreters of other environments, by the name of the library.

  Yields:
    The processes, by the name of their library.
  """
  with ExitStack() as stack:
    children = {}
    for name in names:
      log = stack.enter_context(tempfile.TemporaryFile("w+"))
      process = subprocess.Popen(
        [
          pythons.get(name, sys.executable),
          "-m",
          f"experiments.benchmarks.sides.with_{name}",
        ],
        cwd=ROOT,
        env=_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
      )
      stack.enter_context(process)  # closes its pipes, and waits for it
      stack.callback(process.kill)
      children[name] = Child(name, process, log)
    yield children


def _environment() -> dict[str, str]:
  quiet = {
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TRANSFORMERS_VERBOSITY": "error",
    "TRL_EXPERIMENTAL_SILENCE": "1",
    "WANDB_MODE": "disabled",
    # On a GPU, no process may take all memory for itself.
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
  }
  return {**quiet, **os.environ, "PYTHONPATH": str(ROOT)}
