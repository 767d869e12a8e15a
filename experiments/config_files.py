"""Reads config files. Whatever such a file does wrong is reported with its line."""

import runpy
import traceback
from collections.abc import Callable
from pathlib import Path

from pgax.errors import UserError
from pgax.training import PreferenceConfig, RunConfig

CONFIGS = Path(__file__).parent / "configs"


def read_config_file(
  path: str, returns: type = RunConfig
) -> Callable[[], RunConfig | PreferenceConfig]:
  """Reads a config file.

  Args:
    path: Python file with a function `get_config()`.
    returns: type that the function has to return.

  Returns:
    The function; it raises a UserError if the config can't be made.

  Raises:
    UserError: if the file does not exist, can't be run or has no such function; with the
      line.
  """
  if not Path(path).is_file():
    known = ", ".join(sorted(p.name for p in CONFIGS.glob("[a-z]*.py")))
    raise UserError(f"config file {path} does not exist; those in {CONFIGS} are: {known}")
  get_config = _guarded(lambda: runpy.run_path(path), path).get("get_config")
  if not callable(get_config):
    raise UserError(f"config file {path} has no function get_config()")

  def make() -> RunConfig | PreferenceConfig:
    config = _guarded(get_config, path)
    if not isinstance(config, returns):
      raise UserError(
        f"get_config() of config file {path} returned a {type(config).__name__}; it must "
        f"return a {returns.__name__} of pgax.training"
      )
    return config

  return make


def _guarded(function: Callable, path: str) -> object:
  """Calls code of a config file; its errors become a UserError with the line."""
  try:
    return function()
  except KeyboardInterrupt:
    raise
  except SyntaxError as error:
    where = f"config file {path}"
    if error.filename not in (None, path):
      where += f" imports {error.filename}"
    where += f":{error.lineno}" if error.lineno else ""
    text = f": {error.text.strip()}" if error.text else ""
    raise UserError(f"{where} has a syntax error, {error.msg}{text}") from None
  except BaseException as error:  # a file of the user's may raise anything, or exit
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == path]
    where = f"config file {path}" + (f":{lines[-1]}" if lines else "")
    what = " ".join(str(error).split())  # on one line
    raise UserError(f"{where}: {type(error).__name__}: {what}") from None
