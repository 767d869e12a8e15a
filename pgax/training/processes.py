"""Checks that the processes of a run were started for the same run."""

import functools
import hashlib
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

import jax

from pgax.data.task import fingerprint
from pgax.distributed.hosts import (
  broadcast,
  gather,
  is_writer,
  shared_errors,
  this_process,
  wait_for_all,
)
from pgax.errors import UserError
from pgax.runs.workdir import flatten
from pgax.types import Example

_WAIT_SECONDS = 5.0  # for a file of another host to appear on a network disk


def check_processes(
  workdir: Path, record: Mapping, examples: Sequence[Example] = ()
) -> None:
  """Checks that all processes have one configuration, one version and one folder.

  Nothing is checked with one process.

  Args:
    workdir: folder of the run.
    record: configuration of the run, as JSON values.
    examples: problems to train on.

  Raises:
    UserError: in every process, with the first difference.
  """
  if jax.process_count() == 1:
    return
  facts = {
    "the version of jax": jax.__version__,
    "the code of pgax": _code_digest(),
    "the number of local devices": jax.local_device_count(),
    **{f"config.{key}": repr(value) for key, value in flatten(record).items()},
  }
  if len(examples):
    facts["the training problems"] = fingerprint(examples)
  _check_equal(gather((this_process(), facts)))
  _check_folder(workdir)


def _check_equal(everyone: Sequence[tuple[str, Mapping[str, object]]]) -> None:
  first, expected = everyone[0]
  for other, facts in everyone[1:]:
    for fact in sorted(facts.keys() | expected.keys()):
      ours, theirs = (x.get(fact, "absent") for x in (expected, facts))
      if ours != theirs:
        raise UserError(
          f"the processes of this run differ: {fact} is {ours} in {first} and {theirs} in "
          f"{other}. Start all of them with the same command, code and files"
        )


def _check_folder(workdir: Path) -> None:
  """Checks that all processes see what the writer writes."""
  path = workdir / f".seen-{broadcast(uuid.uuid4().hex)}"
  existed = workdir.exists()
  with shared_errors():
    try:
      if is_writer():
        workdir.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    except OSError as error:
      raise UserError(
        f"workdir {workdir} can't be written: {error.strerror}. Give a writable folder"
      ) from None
  wait_for_all()
  answers = gather((this_process(), _appears(path)))
  if is_writer():
    path.unlink(missing_ok=True)
    if not existed:  # a run that is rejected leaves nothing
      workdir.rmdir()
  wait_for_all()
  blind = [process for process, sees in answers if not sees]
  if blind:
    raise UserError(
      f"workdir {workdir} is not one shared folder: {', '.join(blind)} does not see what "
      f"{answers[0][0]} writes to it. Give a folder on a disk that all hosts share"
    )


def _appears(path: Path) -> bool:
  end = time.monotonic() + _WAIT_SECONDS
  while not (found := path.exists()) and time.monotonic() < end:
    time.sleep(0.1)
  return found


@functools.cache
def _code_digest() -> str:
  """Returns a digest of the source files of pgax."""
  root, digest = Path(__file__).parents[1], hashlib.blake2b(digest_size=8)
  for path in sorted(root.rglob("*.py")):
    digest.update(f"{path.relative_to(root)}\n".encode() + path.read_bytes())
  return digest.hexdigest()
