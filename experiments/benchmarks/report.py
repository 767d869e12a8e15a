"""Formats results as Markdown tables."""

from collections.abc import Mapping, Sequence
from typing import Any

Row = tuple[str, ...]


def table(rows: Sequence[Row]) -> str:
  """Formats rows of cells as a Markdown table; the first row is the header."""
  widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
  rule = tuple("-" * width for width in widths)
  lines = [rows[0], rule, *rows[1:]]
  return "\n".join(
    "| "
    + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
    + " |"
    for row in lines
  )


def spread(ratio: Mapping[str, float]) -> str:
  """Formats a median with its range, such as `1.25 (1.20-1.31)`."""
  return f"{ratio['median']:.2f} ({ratio['min']:.2f}-{ratio['max']:.2f})"


def library_rows(result: Mapping[str, Any]) -> list[Row]:
  """Formats a result with a row for each library, after a header.

  Columns that are empty in all rows are left out.
  """
  header = (
    "library",
    "tokens/s",
    "pgax is faster by",
    "in CPU time",
    "s per update",
    "pgax's is faster by",
    "in CPU time",
    "peak MB",
  )
  rows = [_library("pgax", result)]
  rows += [_library(name, peer) for name, peer in result.get("peers", {}).items()]
  kept = [i for i in range(len(header)) if any(row[i] for row in rows)]
  return [tuple(row[i] for i in kept) for row in (header, *rows)]


def _library(name: str, result: Mapping[str, Any]) -> Row:
  ratio = result.get("ratio", {})

  def ratios(call: str) -> Row:
    clocks = ("wall", "cpu")
    return tuple(spread(ratio[call][x]) if call in ratio else "" for x in clocks)

  speed = f"{result['gen_tok_s']:,.0f}" if "gen_tok_s" in result else ""
  step = f"{result['step_s']:.3f}" if "step_s" in result else ""
  memory = f"{result['peak_bytes'] / 1e6:,.0f}"
  return (name, speed, *ratios("generate"), step, *ratios("update"), memory)


def limits(result: Mapping[str, Any]) -> str:
  """Describes the machine's limits, and the shares of them that were reached."""
  rates = result["machine"]
  parts = [
    f"machine: {rates['matmul_flops_s'] / 1e9:,.0f} GFLOP/s in a matrix product, "
    f"{rates['bytes_s'] / 1e9:,.1f} GB/s of memory"
  ]
  if "step_mfu" in result:
    parts.append(f"update: {result['step_mfu']:.0%} of the matmul rate")
  if "decode_bandwidth_share" in result:
    parts.append(f"decoding: {result['decode_bandwidth_share']:.0%} of the bandwidth")
  return "; ".join(parts)
