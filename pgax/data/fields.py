"""What of a row makes a problem."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Protocol

import numpy as np

from pgax.data.mixture import NAME
from pgax.data.templates import fill
from pgax.rewards.math import MARKER, parse_answer
from pgax.types import Example

# Far beyond any metadata, and far within what Python can recurse to.
_MAX_LEVELS = 100


class ParseFn(Protocol):
  """A row to a problem; raises ValueError for a row that makes none."""

  def __call__(self, row: Mapping[str, Any]) -> Example: ...


def field(row: Mapping[str, Any], name: str) -> Any:
  """A field of a row; `a.b` is field `b` of field `a`, where there is no field `a.b`."""
  if name in row:
    return row[name]
  outer, dot, inner = name.partition(".")
  if dot and isinstance(row.get(outer), Mapping):
    return field(row[outer], inner)
  raise ValueError(f"field {name!r} is missing; there are {', '.join(sorted(row))}")


def text_field(row: Mapping[str, Any], name: str, numbers: bool = False) -> str:
  """A field that is text, and not empty.

  Args:
    row: of a source; its texts may be bytes.
    name: of the field; see `field`.
    numbers: whether a number will do, which is then written out, without an exponent.

  Returns:
    The text.

  Raises:
    ValueError: if it is missing, of another type, not UTF-8 or empty.
  """
  value = field(row, name)
  value = value.item() if isinstance(value, np.generic) else value
  if isinstance(value, bytes):
    value = value.decode("utf-8")  # UnicodeDecodeError is a ValueError
  if numbers and isinstance(value, int) and not isinstance(value, bool):
    return str(value)
  if numbers and isinstance(value, float):
    if not math.isfinite(value):
      raise ValueError(f"field {name!r} is {value}; it must be finite")
    return f"{Decimal(repr(value)):f}"
  if not isinstance(value, str):
    raise ValueError(f"field {name!r} is {_shown(value)}; it must be text")
  try:
    value.encode("utf-8")
  except UnicodeEncodeError as error:  # JSON can spell half of a surrogate pair
    raise ValueError(f"field {name!r} is not UTF-8: {error.reason}") from None
  if not value.strip():
    raise ValueError(f"field {name!r} is empty")
  return value


def _shown(value: Any) -> str:
  text = repr(value)
  return text if len(text) <= 60 else f"{text[:57]}..."


def _plain(value: Any, levels: int = _MAX_LEVELS) -> Any:
  """A value of a row as Python's own: texts for bytes, lists for arrays."""
  if not levels:
    raise ValueError(f"metadata are nested deeper than {_MAX_LEVELS} levels")
  if isinstance(value, bytes):
    return value.decode("utf-8")
  if isinstance(value, Mapping):
    return {key: _plain(item, levels - 1) for key, item in value.items()}
  if isinstance(value, np.generic | np.ndarray):
    return _plain(value.tolist(), levels)
  if isinstance(value, list | tuple):
    return [_plain(item, levels - 1) for item in value]
  return value


@dataclasses.dataclass(frozen=True)
class Fields:
  """A problem by the names of a row's fields.

  Attributes:
    prompt: field of the question.
    ground_truth: field of what the reward compares with, text or a number; empty for none.
    solution: field of the worked solution; empty for none.
    metadata: fields that the reward function is given beside; see `Example`.
    template: the prompt, with `{prompt}` where the question stands.
    marker: if it is not empty, the ground truth is what follows the last one in its field,
      up to the end of the line.
  """

  prompt: str
  ground_truth: str = ""
  solution: str = ""
  metadata: Sequence[str] = ()
  template: str = "{prompt}"
  marker: str = ""

  def __post_init__(self):
    if isinstance(self.metadata, str):
      raise ValueError(
        f"metadata is {self.metadata!r}; it must be a list of names of fields"
      )
    object.__setattr__(self, "metadata", tuple(self.metadata))  # a list, from a file
    if NAME in self.metadata:
      raise ValueError(
        f"metadata names the field {NAME!r}; under that name the metadata have the task of "
        "a mixture"
      )
    fill(self.template, "")
    if not self.prompt:
      raise ValueError("prompt is ''; it must be the name of a field")
    if self.marker and not self.ground_truth:
      raise ValueError(f"marker is {self.marker!r}, and ground_truth names no field")

  def __call__(self, row: Mapping[str, Any]) -> Example:
    """Makes a problem of a row; see `ParseFn`."""
    truth = text_field(row, self.ground_truth, numbers=True) if self.ground_truth else ""
    if self.marker:
      _, found, tail = truth.rpartition(self.marker)
      truth = tail.partition("\n")[0].strip()
      if not found or not truth:
        raise ValueError(
          f"field {self.ground_truth!r} has nothing after the marker {self.marker!r}"
        )
    return Example(
      prompt=fill(self.template, text_field(row, self.prompt)),
      ground_truth=truth,
      solution=text_field(row, self.solution) if self.solution else "",
      metadata={name: _plain(field(row, name)) for name in self.metadata},
    )


@dataclasses.dataclass(frozen=True)
class GSM8KFields:
  """A problem of GSM8K (arXiv 2110.14168): `question`, and `answer` that ends in `#### n`.

  The ground truth is the number, without separators of thousands; the solution is the
  whole answer.

  Attributes:
    template: the prompt, with `{prompt}` where the question stands.
  """

  template: str = "{prompt}\n"

  def __post_init__(self):
    fill(self.template, "")

  def __call__(self, row: Mapping[str, Any]) -> Example:
    """Makes a problem of a row; see `ParseFn`."""
    question, solution = text_field(row, "question"), text_field(row, "answer")
    answer = parse_answer(solution)
    if answer is None:
      raise ValueError(f"the answer has no number after {MARKER!r}")
    return Example(fill(self.template, question), f"{answer:f}", solution)
