"""The folder of a run: made, or recognised as its own, before anything expensive."""

import json
from collections.abc import Mapping
from pathlib import Path

from pgax.training.errors import UserError

CONFIG = "config.json"
_PROBE, _UNFINISHED = ".writable", f".{CONFIG}"
# Settings that a run may change when it goes on: they decide how far it goes and what is
# looked at, and not what a step computes.
_FREE = frozenset(
  {
    "steps",
    "answer",
    "eval_every",
    "eval_problems",
    "eval_samples",
    "eval_temperature",
    "checkpoint_every",
    "keep_checkpoints",
    "samples_every",
    "scoring.max_unscorable",
    "scoring.workers",
  }
)


def flatten(config: Mapping, prefix: str = "") -> dict[str, object]:
  """A nested mapping as one of dotted names."""
  flat = {}
  for key, value in config.items():
    name = f"{prefix}{key}"
    flat |= flatten(value, f"{name}.") if isinstance(value, Mapping) else {name: value}
  return flat


def open_workdir(workdir: Path, config: Mapping) -> None:
  """Makes the folder of a run, or makes sure that it is this run's.

  Args:
    workdir: the folder; new, empty, or of an earlier start of the same run.
    config: the run's configuration, as JSON values; saved as `config.json`.

  Raises:
    UserError: if the folder can't be written, holds other things, or holds a run of
      another configuration.
  """
  try:
    workdir.mkdir(parents=True, exist_ok=True)
    probe = workdir / _PROBE
    probe.write_text("")
    probe.unlink()
  except OSError as error:
    raise UserError(
      f"workdir {workdir} can't be written: {error.strerror}. Give a folder that can"
    ) from None
  saved = read_config(workdir)
  if saved is None:
    # What a start that was killed in this very function leaves does not make it foreign.
    ours = {_PROBE, _UNFINISHED}
    others = sorted(path.name for path in workdir.iterdir() if path.name not in ours)
    if others:
      raise UserError(
        f"workdir {workdir} holds {', '.join(others[:3])}{' ...' * (len(others) > 3)} but "
        f"no {CONFIG}: it is not the folder of a run. Give a new or an empty one"
      )
  else:
    _compare(workdir, flatten(saved), flatten(config))
  temporary = workdir / _UNFINISHED
  temporary.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
  temporary.replace(workdir / CONFIG)


def read_config(workdir: Path) -> dict | None:
  """The configuration saved with a run, or None if the folder has none.

  Raises:
    UserError: if the file is not JSON.
  """
  path = workdir / CONFIG
  if not path.is_file():
    return None
  try:
    return json.loads(path.read_text(encoding="utf-8"))
  except ValueError as error:
    raise UserError(f"{path} is not the configuration of a run: {error}") from None


def _compare(workdir: Path, saved: Mapping, given: Mapping) -> None:
  missing = object()
  for name in sorted((saved.keys() | given.keys()) - _FREE):
    before, now = saved.get(name, missing), given.get(name, missing)
    if before != now:
      told = ["absent" if x is missing else repr(x) for x in (now, before)]
      raise UserError(
        f"{name} is {told[0]}, but the run in {workdir} has {told[1]}. Give the same "
        f"configuration to go on, or another workdir; free to change are "
        f"{', '.join(sorted(_FREE))}"
      )
