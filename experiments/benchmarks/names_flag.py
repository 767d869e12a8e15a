"""Flags whose value is some of a few names, and that mean all of them without a value."""

from absl import flags

# `--help` lists the flags defined here among those of the program.
flags.disclaim_key_flags()


class _Names(flags.ArgumentParser):
  """Parses names separated by commas; a flag without a value means all of them."""

  def __init__(self, allowed: tuple[str, ...]):
    self._allowed = allowed

  def parse(self, argument: str) -> tuple[str, ...]:
    if argument in ("true", "false"):
      return self._allowed if argument == "true" else ()
    names = tuple(argument.split(","))
    for name in names:
      if name not in self._allowed:
        raise ValueError(f"it must be some of {', '.join(self._allowed)}")
    return names


def define_names(name: str, allowed: tuple[str, ...], text: str) -> flags.FlagHolder:
  """Defines a flag such as `--grid` or `--grid=decode,heads`.

  Args:
    name: name of the flag.
    allowed: names that its value may have.
    text: help text.

  Returns:
    The holder of the flag, whose value is a tuple of names, or None without the flag.
  """
  flag = flags.Flag(_Names(allowed), None, name, None, text, boolean=True)
  return flags.DEFINE_flag(flag)
