"""The presets as a table of their parts: `python -m experiments.presets`.

Made from the values themselves. `docs/presets.md` is its output, which a test compares.
"""

import dataclasses
import inspect
import re
from typing import Any

from pgax.algorithms import Algorithm, KLPenalty, presets

_HEAD = """# The presets and their parts

Made by `python -m experiments.presets`, from the values that `pgax.algorithms` gives by
default. Each preset is a function of its settings, and each part can be replaced:
`dataclasses.replace(algorithms.grpo(), aggregation=aggregation.token_mean)`. Formulas
stand in the docstrings: of the presets, of `pgax.algorithms.parts`, and of the ops that
they call. Sources are numbers of arXiv. Settings that are None or False are left out.
"""
_COLUMNS = ("advantage", "surrogate", "aggregation", "kl")


def describe(value: Any) -> str:
  """A part in a few words: its name, and its settings.

  Args:
    value: a part of an algorithm, or a setting of one.

  Returns:
    Such as `Clipped(clip_low=0.2, clip_high=0.28)`; a function by its name.
  """
  if dataclasses.is_dataclass(value):
    settings = [
      f"{name}={describe(setting)}"
      for name, setting in vars(value).items()
      if setting is not None and setting is not False
    ]
    return f"{type(value).__name__}({', '.join(settings)})"
  if isinstance(value, tuple):
    return ", ".join(map(describe, value))
  return value.__name__ if callable(value) else repr(value)


def describe_kl(penalty: KLPenalty) -> str:
  """A KL penalty in a few words."""
  told = f"`{penalty.estimator.__name__}` in the {penalty.placement}"
  if penalty.anchor == "old":
    told += ", to the old policy"
  if penalty.corrected:
    told += ", times the ratio"
  return f"{told}: `{describe(penalty.controller)}`"


def rest(algorithm: Algorithm) -> str:
  """What an algorithm has beyond the columns of the table.

  Args:
    algorithm: the algorithm.

  Returns:
    Every other field that differs from its default, as `name: value`.
  """
  told = [
    f"{field.name}: `{describe(vars(algorithm)[field.name])}`"
    for field in dataclasses.fields(Algorithm)
    if field.name not in _COLUMNS and vars(algorithm)[field.name] != field.default
  ]
  return "<br>".join(told) or "-"


def table() -> str:
  """The page: a row for every preset."""
  lines = [_HEAD, f"| preset | source | {' | '.join(_COLUMNS)} | rest |"]
  lines.append("| --- " * (len(_COLUMNS) + 3) + "|")
  for preset in presets.ALL:
    algorithm = preset()
    cells = [f"`{describe(vars(algorithm)[name])}`" for name in _COLUMNS[:-1]]
    cells.append(describe_kl(algorithm.kl) if algorithm.kl else "-")
    text = inspect.getdoc(preset)
    source = ", ".join(re.findall(r"arXiv\s+(\d{4}\.\d{5})", text)) or "Williams 1992"
    cells = [f"`{preset.__name__}`", source, *cells, rest(algorithm)]
    lines.append(f"| {' | '.join(cells)} |")
  return "\n".join(lines) + "\n"


if __name__ == "__main__":
  print(table(), end="")
