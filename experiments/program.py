"""Shared by all programs: flags, help and exit status."""

import errno
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import jax
from absl import app, flags, logging
from transformers import PreTrainedTokenizerFast

from experiments.config_flag import ConfigFlag
from pgax.data.tokenizer import byte_tokenizer, load_tokenizer
from pgax.distributed import hosts
from pgax.distributed.cluster import ending_together, initialize
from pgax.errors import UserError
from pgax.runs import enable_compilation_cache
from pgax.runs.loggers import BUILT_IN
from pgax.training.train import DEFAULT_LOGGERS

_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.ENAMETOOLONG)
# Paths that are something else than the program needs there, or somebody else's.
_UNUSABLE = (errno.EACCES, errno.EPERM, errno.EEXIST, errno.EISDIR, errno.ENOTDIR)
# `--help` lists the flags defined here among those of the program.
flags.disclaim_key_flags()
_HELP = {"--help", "-help", "-h", "--h", "-?", "--helpfull", "--helpshort"}


def define_loggers() -> flags.FlagHolder:
  """Defines the flag `--loggers`.

  Returns:
    The holder of the flag.
  """
  allowed = ", ".join(sorted(BUILT_IN))
  return flags.DEFINE_list(
    "loggers",
    list(DEFAULT_LOGGERS),
    f"Where metrics go: any of {allowed}. JSON Lines are always written.",
  )


def run(
  main: Callable[[], int | None],
  processes: bool = False,
  config: ConfigFlag | None = None,
) -> None:
  """Runs a program. Errors that the user can fix end it with a message and status 2.

  Args:
    main: function that returns the exit status; flags are parsed when it is called.
    processes: whether the program can be started as several processes, with the flags
      `--coordinator`, `--num_processes` and `--process_id`. One of them prints.
    config: the program's flag `--config`; `--help` lists the settings of its file.
  """
  if processes:
    _define_processes()

  def guarded(argv: Sequence[str]) -> int:
    try:
      if len(argv) > 1:
        raise UserError(
          f"unexpected argument {argv[1]!r}; settings are given as --name=value"
        )
      if "workdir" in flags.FLAGS and flags.FLAGS.workdir == "":
        raise UserError("--workdir is empty; give a folder")
      # Libraries log tracebacks of what they raise as well, which is reported below.
      logging.set_verbosity(logging.FATAL)
      warnings.formatwarning = _format_warning
      sys.unraisablehook = _print_unraisable
      if processes:
        _join_processes()
      enable_compilation_cache()
      with ending_together():
        status = main() or 0
        if jax.distributed.is_initialized():
          hosts.wait_for_all()  # an end of its own would look like a failure
      return status
    except UserError as error:
      return _report(error)
    except OSError as error:
      if error.errno not in (*_UNWRITABLE, *_UNUSABLE):
        raise
      where = error.filename or "a file of the run"
      what = "written" if error.errno in _UNWRITABLE else "used"
      return _report(UserError(f"{where} can't be {what}: {error.strerror}"))
    except KeyboardInterrupt:
      print(
        "\nstopped; the same command continues from the last checkpoint", file=sys.stderr
      )
      return 130

  try:
    _check_arguments(sys.argv)
    if config is not None:
      config.read(sys.argv)
      if _HELP & set(sys.argv[1:]):
        program = sys.modules["__main__"]
        program.__doc__ = f"{program.__doc__ or ''}\n{config.describe()}"
    app.run(guarded)
  except (UserError, flags.Error) as error:  # the latter for a --flagfile
    sys.exit(_report(error))


def _define_processes() -> None:
  """Defines the flags of a program that can be started as several processes."""
  flags.DEFINE_string(
    "coordinator",
    None,
    "HOST:PORT of process 0, for processes that no cluster started together.",
  )
  flags.DEFINE_integer("num_processes", None, "Number of processes.", lower_bound=1)
  flags.DEFINE_integer("process_id", None, "Index of this process.", lower_bound=0)


def _join_processes() -> None:
  values = flags.FLAGS
  initialize(values.coordinator, values.num_processes, values.process_id)
  if jax.distributed.is_initialized() and not hosts.is_writer():
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    warnings.simplefilter("ignore")  # the writer's are the same


def _format_warning(message: Warning | str, *_: object, **__: object) -> str:
  """Formats a warning without the line of code that it comes from."""
  return f"warning: {message}\n"


def _print_unraisable(error: "sys.UnraisableHookArgs") -> None:
  """Prints an exception that could not be raised, unless it follows from one that was.

  If a checkpoint can't be written, tensorstore's threads call back into an event loop that
  is closed by then, once for each array.
  """
  if str(error.exc_value) != "Event loop is closed":
    sys.__unraisablehook__(error)


def _report(error: Exception) -> int:
  """Prints a message, in any locale; returns the exit status."""
  print(f"error: {error}", file=sys.stderr)
  return 2


def output_file(path: str) -> Path:
  """Checks the path of `--output` before anything is computed for it.

  Args:
    path: value of the flag.

  Returns:
    The path.

  Raises:
    UserError: if it can't be a file.
  """
  output = Path(path)
  if output.is_dir() or not output.parent.is_dir():
    raise UserError(f"--output={output} is not a file in an existing folder")
  return output


def tokenizer(model_path: str) -> PreTrainedTokenizerFast:
  """Loads the tokenizer of a model's directory; an empty path gives the byte tokenizer."""
  if not model_path:
    return byte_tokenizer()
  try:
    return load_tokenizer(Path(model_path))
  except Exception as error:  # transformers raises anything for a bad tokenizer.json
    what = f"{type(error).__name__}: {error}".splitlines()[0]
    raise UserError(
      f"config.model.path is {model_path!r}, but its tokenizer can't be read: {what}"
    ) from None


def _check_arguments(argv: Sequence[str]) -> None:
  """Rejects bad text, and flags given twice, of which the last would win."""
  values = {}
  for argument in argv[1:]:
    if not argument.isprintable() and any("\ud800" <= x <= "\udfff" for x in argument):
      raise UserError(
        f"argument {argument!a} is not text in the encoding of this locale, "
        f"{sys.getfilesystemencoding()}; set PYTHONUTF8=1, or LC_ALL to one with UTF-8"
      )
  for argument in argv[1:]:
    if argument == "--":
      return
    name, _, value = argument.partition("=")
    name = name.lstrip("-").replace("-", "_")
    several = name in flags.FLAGS and isinstance(flags.FLAGS[name], flags.MultiFlag)
    if argument.startswith("-") and name in values and not several:
      raise UserError(
        f"--{name} is given twice, as {values[name]!r} and {value!r}; give it once"
      )
    if argument.startswith("-"):
      values[name] = value
