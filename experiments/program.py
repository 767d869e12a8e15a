"""What every program here shares: flags that explain themselves, and how one ends."""

import errno
import itertools
import runpy
import sys
import types
from collections.abc import Callable, Sequence
from pathlib import Path

from absl import app, flags, logging
from ml_collections import ConfigDict
from ml_collections.config_flags import config_flags
from transformers import PreTrainedTokenizerFast

from pgax.data.tokenizer import byte_tokenizer, load_tokenizer
from pgax.training import UserError, enable_compilation_cache

CONFIGS = Path(__file__).parent / "configs"


def define_config(default: str | None) -> flags.FlagHolder:
  """The flag `--config`, a file with a function `get_config`, and `--config.key=value`.

  ml_collections applies overrides as soon as the flag is defined, and meets an unknown key
  with a traceback; so they are looked at before.

  Args:
    default: the file to read when `--config` is not given, or None.

  Returns:
    The holder of the flag.
  """
  try:
    _check_overrides(sys.argv, default)
  except UserError as error:
    print(f"error: {error}", file=sys.stderr)
    sys.exit(2)
  return config_flags.DEFINE_config_file(
    "config", default, "File whose get_config() returns the configuration."
  )


def run(main: Callable[[], int | None]) -> None:
  """Runs a program; what the user can mend ends it with a message and status 2.

  Args:
    main: takes nothing (flags are parsed by then) and returns the exit status.
  """

  def guarded(argv: Sequence[str]) -> int:
    try:
      if len(argv) > 1:
        raise UserError(
          f"unexpected argument {argv[1]!r}; settings are given as --name=value"
        )
      logging.set_verbosity(logging.ERROR)
      enable_compilation_cache()
      return main() or 0
    except UserError as error:
      print(f"error: {error}", file=sys.stderr)
      return 2
    except OSError as error:
      if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
        raise
      where = error.filename or "a file of the run"
      print(f"error: {where} can't be written: {error.strerror}", file=sys.stderr)
      return 2
    except KeyboardInterrupt:
      print("\nstopped; the same command starts again from what is saved", file=sys.stderr)
      return 130

  app.run(guarded)


def output_file(path: str) -> Path:
  """What `--output` names, looked at before anything is computed for it.

  Raises:
    UserError: if it can't be a file.
  """
  output = Path(path)
  if output.is_dir() or not output.parent.is_dir():
    raise UserError(f"--output={output} is no file in a folder that is there")
  return output


def tokenizer(model_path: str) -> PreTrainedTokenizerFast:
  """The tokenizer of a model's directory, or the one of bytes for an empty path."""
  if not model_path:
    return byte_tokenizer()
  try:
    return load_tokenizer(Path(model_path))
  except (OSError, ValueError) as error:
    raise UserError(
      f"config.model.path is {model_path!r}, and its tokenizer can't be read: "
      f"{str(error).splitlines()[0]}"
    ) from None


def _check_overrides(argv: Sequence[str], default: str | None) -> None:
  """Refuses a missing config file, an unknown key, and a key that can't be set here."""
  given = [argument.lstrip("-").partition("=")[::2] for argument in argv[1:]]
  overrides = [name for name, _ in given if name.startswith("config.")]
  path = dict(given).get("config", default)
  if path == "":  # `--config FILE`, in two words
    path = dict(itertools.pairwise(argv)).get("--config", "")
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
  if overrides:
    config = make()
    for name in overrides:
      _check_override(config, name, path)


def _check_override(config: ConfigDict, name: str, path: str) -> None:
  where, part, kind = "config", config, ConfigDict
  for key in name.split(".")[1:]:
    if not isinstance(part, ConfigDict) or key not in part:
      allowed = ", ".join(sorted(part)) if isinstance(part, ConfigDict) else "no keys"
      raise UserError(f"{where} has no key {key!r}; allowed are {allowed}")
    where, kind, part = f"{where}.{key}", part.get_type(key), part[key]
  # Where a function may stand and none does, there is no type to read a value by.
  if kind is types.NoneType or callable(part) or isinstance(part, ConfigDict):
    raise UserError(f"--{name} can't be set on the command line; copy {path} and edit it")
