"""Builds examples from the fields of a data row."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Protocol

import numpy as np

from pgax.data.mixture import NAME
from pgax.data.templates import fill
from pgax.types import Example

# Far beyond any context; tokenizing much more takes minutes.
_MAX_CHARACTERS = 1_000_000
# Far beyond any metadata, and far below Python's recursion limit.
_MAX_DEPTH = 100


class ParseFn(Protocol):
  """Builds an example from a row; raises ValueError for a bad row."""

  def __call__(self, row: Mapping[str, Any]) -> Example: ...


def field(row: Mapping[str, Any], name: str) -> Any:
  """Returns a field of a row; `a.b` is field `b` of `a` unless a field is named `a.b`."""
  if name in row:
    return row[name]
  outer, dot, inner = name.partition(".")
  if dot and isinstance(row.get(outer), Mapping):
    return field(row[outer], inner)
  raise ValueError(f"field {name!r} is missing; the fields are {', '.join(sorted(row))}")


def text_field(row: Mapping[str, Any], name: str, numbers: bool = False) -> str:
  """Returns a field that must be text and not empty.

  Args:
    row: fields of a row; text may be bytes.
    name: name of the field; see `field`.
    numbers: whether the field may be a number, which is then written without an exponent.

  Returns:
    The text.

  Raises:
    ValueError: if the field is missing, of another type, not UTF-8, empty, or longer than a
      million characters.
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
    raise ValueError(f"field {name!r} is {_abbreviate(value)}; it must be text")
  try:
    value.encode("utf-8")
  except UnicodeEncodeError as error:  # JSON can contain half of a surrogate pair
    raise ValueError(f"field {name!r} is not UTF-8: {error.reason}") from None
  if not value.strip():
    raise ValueError(f"field {name!r} is empty")
  if len(value) > _MAX_CHARACTERS:
    raise ValueError(
      f"field {name!r} has {len(value):,} characters; at most {_MAX_CHARACTERS:,} are read"
    )
  return value


def _abbreviate(value: Any) -> str:
  text = repr(value)
  return text if len(text) <= 60 else f"{text[:57]}..."


def _to_python(value: Any, depth: int = _MAX_DEPTH) -> Any:
  """Converts a value of a row to Python's own types: bytes to text, arrays to lists."""
  if not depth:
    raise ValueError(f"the metadata is nested deeper than {_MAX_DEPTH} levels")
  if isinstance(value, bytes):
    return value.decode("utf-8")
  if isinstance(value, Mapping):
    return {key: _to_python(item, depth - 1) for key, item in value.items()}
  if isinstance(value, np.generic | np.ndarray):
    return _to_python(value.tolist(), depth)
  if isinstance(value, list | tuple):
    return [_to_python(item, depth - 1) for item in value]
  return value


@dataclasses.dataclass(frozen=True)
class Fields:
  """Builds examples from fields of a row, selected by name.

  Attributes:
    prompt: name of the question's field.
    ground_truth: name of the ground truth's field (text or a number); empty for none.
    solution: name of the worked solution's field; empty for none.
    metadata: names of fields that become the example's metadata.
    template: prompt with `{prompt}` in place of the question.
    marker: if it is not empty, the ground truth is the rest of the line after the last
      marker in its field.
  """

  prompt: str
  ground_truth: str = ""
  solution: str = ""
  metadata: Sequence[str] = ()
  template: str = "{prompt}"
  marker: str = ""

  def __post_init__(self):
    if isinstance(self.metadata, str):
      raise ValueError(f"metadata is {self.metadata!r}; it must be a list of field names")
    object.__setattr__(self, "metadata", tuple(self.metadata))  # files have lists
    if NAME in self.metadata:
      raise ValueError(
        f"metadata names the field {NAME!r}; that name is reserved for the task of a "
        "mixture"
      )
    fill(self.template, "")  # checks the template
    if not self.prompt:
      raise ValueError("prompt is ''; it must be a field name")
    if self.marker and not self.ground_truth:
      raise ValueError(f"marker is {self.marker!r}, but ground_truth names no field")

  def __call__(self, row: Mapping[str, Any]) -> Example:
    """Builds an example from a row; see `ParseFn`."""
    truth = text_field(row, self.ground_truth, numbers=True) if self.ground_truth else ""
    if self.marker:
      _, marker, tail = truth.rpartition(self.marker)
      truth = tail.partition("\n")[0].strip()
      if not marker or not truth:
        raise ValueError(
          f"field {self.ground_truth!r} has nothing after the marker {self.marker!r}"
        )
    return Example(
      prompt=fill(self.template, text_field(row, self.prompt)),
      ground_truth=truth,
      solution=text_field(row, self.solution) if self.solution else "",
      metadata={name: _to_python(field(row, name)) for name in self.metadata},
    )
