"""What every program here shares: flags that explain themselves, and how one ends."""

import runpy
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from absl import app, flags, logging
from ml_collections import ConfigDict
from ml_collections.config_flags import config_flags

from pgax.training import UserError, enable_compilation_cache

CONFIGS = Path(__file__).parent / "configs"


def define_config(default: str | None) -> flags.FlagHolder:
  """The flag `--config`, a file with a function `get_config`, and `--config.key=value`."""
  return config_flags.DEFINE_config_file(
    "config", default, "File whose get_config() returns the configuration."
  )


def run(main: Callable[[], int | None], default_config: str | None = None) -> None:
  """Runs a program; what the user can mend ends it with a message and status 2.

  Args:
    main: takes nothing (flags are parsed by then) and returns the exit status.
    default_config: what `define_config` was given.
  """

  def guarded(argv: Sequence[str]) -> int:
    try:
      if len(argv) > 1:
        raise UserError(f"unexpected argument {argv[1]!r}; settings are given as --name=value")
      logging.set_verbosity(logging.WARNING)
      enable_compilation_cache()
      return main() or 0
    except UserError as error:
      print(f"error: {error}", file=sys.stderr)
      return 2

  def parse(argv: Sequence[str]) -> list[str]:
    try:
      _check_overrides(argv, default_config)
    except UserError as error:
      print(f"error: {error}", file=sys.stderr)
      sys.exit(2)
    return app.parse_flags_with_usage(list(argv))

  app.run(guarded, flags_parser=parse)


def _check_overrides(argv: Sequence[str], default_config: str | None) -> None:
  """Names a missing config file and an unknown key before ml_collections meets them."""
  given = [argument.lstrip("-").partition("=")[::2] for argument in argv[1:]]
  overrides = [name for name, _ in given if name.startswith("config.")]
  path = dict(given).get("config", default_config)
  if path == "":  # `--config FILE`, in two words
    path = dict(zip(argv, argv[1:], strict=False)).get("--config", "")
  if path is None:
    if overrides:
      raise UserError(f"--{overrides[0]} needs --config=FILE")
    return
  if not Path(path).is_file():
    known = ", ".join(sorted(p.name for p in CONFIGS.glob("[a-z]*.py")))
    raise UserError(f"config file {path} does not exist; in {CONFIGS} there are: {known}")
  make = runpy.run_path(path).get("get_config")
  if make is None:
    raise UserError(f"config file {path} has no function get_config()")
  config = make()
  for name in overrides:
    where, part = "config", config
    for key in name.split(".")[1:]:
      if not isinstance(part, ConfigDict) or key not in part:
        allowed = ", ".join(sorted(part)) if isinstance(part, ConfigDict) else "no keys"
        raise UserError(f"{where} has no key {key!r}; allowed are {allowed}")
      where, part = f"{where}.{key}", part[key]
    if callable(part) or isinstance(part, ConfigDict):
      raise UserError(f"--{name} can't be set on the command line; copy {path} and edit it")
