"""Collectives of a compiled program, read from the text of its HLO.

Numbers that a program computes can't tell where its arrays are. What devices send can.
"""

import dataclasses
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

KINDS = ("all-gather", "all-reduce", "reduce-scatter", "all-to-all", "collective-permute")
_ITEMSIZES = {"pred": 1, "bf16": 2}  # others are named as their number of bits
_HEADER = re.compile(r"^(ENTRY )?%?([\w.\-]+) .*\{$")
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%([\w.\-]+) = (.*?) ([a-z][\w\-]*)\((.*)$")
_ARRAY = re.compile(r"(\w+)\[([\d,]*)\]")
_CALLED = re.compile(r"(?:calls|to_apply|true_computation|false_computation)=%?([\w.\-]+)")


@dataclasses.dataclass(frozen=True)
class Collective:
  """A collective of a program.

  Attributes:
    kind: one of `KINDS`.
    shape: type and shape of its result, as in HLO.
    bytes: number of bytes of its result on a device.
    times: number of times that it runs; that of one trip in loops whose number of trips is
      not known.
    in_open_loop: whether it is in such a loop, as that of decoding is.
    source: where it comes from, such as `jvp(Decoder.features)/blocks/mlp/dot_general`.
  """

  kind: str
  shape: str
  bytes: int
  times: int
  in_open_loop: bool
  source: str

  @property
  def total(self) -> int:
    """Bytes of all the times that it runs."""
    return self.bytes * self.times


class _Instruction(NamedTuple):
  name: str
  shape: str
  op: str
  rest: str  # operands and attributes

  def attribute(self, name: str) -> str:
    match = re.search(rf"{name}=%?([\w.\-]+)", self.rest)
    return match[1] if match else ""

  @property
  def operands(self) -> list[str]:
    return re.findall(r"%([\w.\-]+)", self.rest.split(")")[0])

  @property
  def value(self) -> int:
    return int(re.match(r"-?\d+", self.rest)[0])


def collectives(hlo: str) -> list[Collective]:
  """Lists the collectives of a compiled program.

  Args:
    hlo: text of the optimized program, from `jax.stages.Compiled.as_text`.

  Returns:
    The collectives, in the order of the text; one in asynchronous pieces, which share a
    channel, is listed once.
  """
  computations, entry = _parse(hlo)
  by_channel = {}
  for i, (channel, collective) in enumerate(_walk(computations, entry, 1, False)):
    by_channel.setdefault(channel or f"none {i}", collective)
  return list(by_channel.values())


def _parse(hlo: str) -> tuple[dict[str, list[_Instruction]], str]:
  """Splits a program into computations; also returns the name of the first to run."""
  computations, name, entry = {}, "", ""
  for line in hlo.splitlines():
    header = None if line.startswith(" ") else _HEADER.match(line)
    if header:
      name = header[2]
      entry = name if header[1] else entry
      computations[name] = []
    elif match := _INSTRUCTION.match(line):
      computations[name].append(_Instruction(*match.groups()))
  return computations, entry


def _walk(
  computations: Mapping[str, Sequence[_Instruction]], name: str, times: int, is_open: bool
) -> Iterator[tuple[str, Collective]]:
  """Yields the channel of each collective, which is empty for none, and the collective."""
  for instruction in computations.get(name, ()):
    kind = instruction.op.removesuffix("-start")
    if kind in KINDS:
      source = re.search(r'op_name="([^"]*)"', instruction.rest)
      yield (
        instruction.attribute("channel_id"),
        Collective(
          kind,
          re.sub(r"\{[^}]*\}", "", instruction.shape),
          _bytes(instruction),
          times,
          is_open,
          source[1] if source else "",
        ),
      )
    elif instruction.op == "while":
      trips = _trips(computations, instruction)
      body = instruction.attribute("body")
      yield from _walk(computations, body, times * (trips or 1), is_open or trips is None)
    else:
      for called in _called(instruction):
        yield from _walk(computations, called, times, is_open)


def _called(instruction: _Instruction) -> list[str]:
  branches = re.search(r"branch_computations=\{([^}]*)\}", instruction.rest)
  names = re.findall(r"%?([\w.\-]+)", branches[1]) if branches else []
  return names + _CALLED.findall(instruction.rest)


def _bytes(instruction: _Instruction) -> int:
  sizes = [
    math.prod(int(x) for x in dimensions.split(",") if x) * _itemsize(kind)
    for kind, dimensions in _ARRAY.findall(re.sub(r"\{[^}]*\}", "", instruction.shape))
  ]
  if instruction.op in ("all-gather-start", "collective-permute-start"):
    return max(sizes)  # of operand and result
  return sum(sizes)


def _itemsize(kind: str) -> float:
  if kind in _ITEMSIZES:
    return _ITEMSIZES[kind]
  bits = re.search(r"\d+", kind)
  return int(bits[0]) / 8 if bits else 0


def _trips(
  computations: Mapping[str, Sequence[_Instruction]], loop: _Instruction
) -> int | None:
  """Returns how often a loop runs: as noted, or from its counter, limit and step."""
  noted = re.search(r'known_trip_count":\{"n":"(\d+)"', loop.rest)
  if noted:
    return int(noted[1])
  condition = computations.get(loop.attribute("condition"), ())
  if not condition or "direction=LT" not in condition[-1].rest:
    return None
  named = {x.name: x for x in condition}
  compared = [named[name] for name in condition[-1].operands if name in named]
  limits = [x.value for x in compared if x.op == "constant"]
  counters = [int(x.attribute("index")) for x in compared if x.op == "get-tuple-element"]
  if not limits or not counters:
    return None
  step = _step(computations[loop.attribute("body")], counters[0])
  return -(-limits[0] // step)


def _step(body: Sequence[_Instruction], index: int) -> int:
  """Returns the step of a loop's counter: unrolled loops count by several."""
  named = {x.name: x for x in body}
  added = named.get(body[-1].operands[index])
  while added is not None and added.op == "copy":
    added = named.get(added.operands[0])
  if added is None or added.op != "add":
    return 1
  terms = [named[name] for name in added.operands if name in named]
  return next((x.value for x in terms if x.op == "constant"), 1)
