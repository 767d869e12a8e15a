"""The table and the picture of terminal rewards, from the finished runs of its cells."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from experiments.reproductions.tpo import reversal_methods
from experiments.reproductions.tpo.reversal_report import draw_band, draw_panels
from experiments.reproductions.tpo.terminal import MATCHES
from pgax.study import over_seeds

LENGTHS = (7, 8, 9, 10)
STEPS = 2000
# Wrong completions of the last step in percent, by length: Table 3 of the paper, means over
# 20 seeds. None is "above 95 %".
THEIRS = {
  "prompts": {
    "TPO": (6.9, 8.6, 6.1, 7.4),
    "GRPO": (14.5, 27.6, 30.0, 50.4),
    "GRPO without KL": (66.6, 92.5, None, None),
    "PPO": (12.0, 26.3, 90.6, None),
    "DG": (33.8, 58.8, None, None),
  },
  "completions": {
    "TPO": (1.8, 2.8, 5.3, 19.0),
    "GRPO": (9.6, 23.2, 36.2, 48.7),
    "GRPO without KL": (78.1, 83.8, None, None),
    "PPO": (38.6, 62.1, 66.2, None),
    "DG": (47.7, 69.4, None, None),
  },
}
METHODS = tuple(THEIRS["prompts"])
_WINDOW = 20  # steps whose mean is drawn


class Cell(NamedTuple):
  """A method at a length of the prompts.

  Attributes:
    match: quantity that all methods share, one of `terminal.MATCHES`.
    length: number of tokens of a prompt.
    method: name of the method.
  """

  match: str
  length: int
  method: str

  @property
  def theirs(self) -> float | None:
    """Wrong completions in the paper, percent; None above 95."""
    return THEIRS[self.match][self.method][LENGTHS.index(self.length)]

  @property
  def in_groups(self) -> bool:
    """True if the method has groups; it is then the same with either match."""
    return reversal_methods.METHODS[self.method].candidates > 1

  @property
  def folder(self) -> str:
    """Name of the folder of its runs."""
    match = "groups" if self.in_groups else self.match
    return f"{match}_length_{self.length}_{self.method.replace(' ', '_')}"

  @property
  def steps(self) -> int:
    """Number of steps to run."""
    return STEPS

  @property
  def cost(self) -> int:
    """Number of tokens of a step's updates, which take most of its time."""
    alone = self.match == "prompts" and not self.in_groups
    completions = 1 if alone else reversal_methods.CANDIDATES
    return completions * self.length * reversal_methods.METHODS[self.method].epochs

  @property
  def record(self) -> dict[str, str | int]:
    """JSON values that identify the cell."""
    return {"method": self.method, "length": self.length}

  @property
  def label(self) -> str:
    """Name of the cell in the progress bar."""
    return f"{self.method}, {self.length} tokens, as many {self.match}"


def table(results: Mapping[Cell, np.ndarray]) -> str:
  """Formats errors of the last step next to those of the paper.

  Args:
    results: `[seeds, steps]` errors of each cell.

  Returns:
    A Markdown table.
  """
  lines = [
    "| as many | length | method | wrong completions | theirs | difference | seeds |",
    "| --- | ---: | --- | ---: | ---: | ---: | ---: |",
  ]
  for cell, errors in results.items():
    ours, interval = _last_error(errors)
    known = cell.theirs is not None
    cells = (
      cell.match,
      str(cell.length),
      cell.method,
      f"{ours:.1f} %{interval} at {errors.shape[-1]}",
      f"{cell.theirs} %" if known else "over 95 %",
      f"{ours - cell.theirs:+.1f}" if known else "-",
      str(len(errors)),
    )
    lines.append(f"| {' | '.join(cells)} |")
  return "\n".join(lines) + "\n"


def _last_error(errors: np.ndarray) -> tuple[float, str]:
  """Mean over seeds in percent, and its interval if there are several."""
  last = 100 * errors[:, -1]
  if len(last) == 1:
    return float(last[0]), ""
  mean, low, high = (float(x[0, 0]) for x in over_seeds(last[None, :, None]))
  return mean, f" [{low:.1f}, {high:.1f}]"


def draw(results: Mapping[Cell, np.ndarray]) -> Figure:
  """Draws errors by steps, a row for each match and a panel for each length.

  Args:
    results: `[seeds, steps]` errors of each cell.

  Returns:
    A figure with 95 % bands over seeds. Triangles are the errors of the paper.
  """
  matches = [x for x in MATCHES if any(cell.match == x for cell in results)]
  lengths = sorted({cell.length for cell in results})
  cells = [[[Cell(x, y, z) for z in METHODS] for y in lengths] for x in matches]
  size = (1.5 + 3.2 * len(lengths), 0.8 + 2.8 * len(matches))
  figure = Figure(size, layout="constrained")
  title = "Terminal reward: wrong completions with 95 % bands"
  panels = draw_panels(figure, title, cells, results, _draw_cell)
  for row, match in zip(panels, matches, strict=True):
    row[0].set_ylabel(f"as many {match}")
    for panel, length in zip(row, lengths, strict=True):
      panel.set(title=f"{length} tokens", ylim=(0, 1.02))
  return figure


def _draw_cell(panel: object, cell: Cell, errors: np.ndarray, color: str) -> object:
  """Draws a method in a panel; returns its line."""
  window = min(_WINDOW, errors.shape[-1])
  count = errors.shape[-1] // window
  means = errors[:, : count * window].reshape(len(errors), count, -1).mean(-1)
  steps = (np.arange(count) + 0.5) * window
  line = draw_band(panel, steps, means, color)
  if cell.theirs is not None:
    end = errors.shape[-1]
    panel.plot(end, cell.theirs / 100, marker="<", color=color, clip_on=False)
  return line
