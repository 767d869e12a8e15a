"""The table and the picture of token reversal, from the finished runs of its cells."""

import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from experiments.reproductions.tpo.reversal_methods import METHODS
from experiments.reproductions.tpo.reversal_rollout import Task
from pgax.study import over_seeds

GOAL = 0.01
# Steps to 1 % error by method and vocabulary: Table 1 of the paper, means over 20 seeds.
THEIRS = {
  "TPO": {2: 58, 4: 74, 8: 103, 16: 102},
  "GRPO": {2: 904, 4: 141, 8: 124, 16: 148},
  "DG": {2: 199, 4: 273, 8: 314, 16: 393},
  "PPO": {2: 872, 4: 181, 8: 191, 16: 259},
}
_RESAMPLES = 2000
_MARGIN, _SPARE, _ROUND = 1.4, 60, 20


class Cell(NamedTuple):
  """A method at a size of the vocabulary.

  Attributes:
    vocab: number of tokens in the vocabulary.
    method: name of the method.
  """

  vocab: int
  method: str

  @property
  def theirs(self) -> int:
    """Steps to 1 % error in the paper."""
    return THEIRS[self.method][self.vocab]

  @property
  def steps(self) -> int:
    """Number of steps to run: 1.4 times theirs, at least 60 more, a multiple of 20."""
    wanted = max(_MARGIN * self.theirs, self.theirs + _SPARE)
    return math.ceil(wanted / _ROUND) * _ROUND

  @property
  def folder(self) -> str:
    """Name of the folder of its runs."""
    return f"vocab_{self.vocab}_{self.method}"

  @property
  def cost(self) -> int:
    """Number of updates of a run, which take most of its time."""
    return self.steps * METHODS[self.method].epochs

  @property
  def record(self) -> dict[str, Any]:
    """JSON values that identify the cell."""
    return {"method": self.method, "task": dataclasses.asdict(Task(self.vocab))}

  @property
  def label(self) -> str:
    """Name of the cell in the progress bar."""
    return f"{self.method}, {self.vocab} tokens"


def steps_to_goal(errors: np.ndarray) -> tuple[float, float, float]:
  """Finds the first step whose mean error over seeds is below 1 %.

  Args:
    errors: `[seeds, steps]` errors.

  Returns:
    The step and the ends of its 95 % interval, by a bootstrap over seeds; infinite if the
    mean does not get there.
  """
  count = len(errors)
  drawn = np.random.default_rng(0).integers(count, size=(_RESAMPLES, count))
  weights = np.stack([np.bincount(x, minlength=count) for x in drawn]) / count
  resampled = _first_below(weights @ errors)
  # Ends are themselves steps: between a step and infinity there is nothing to interpolate.
  low, high = np.percentile(resampled, [2.5, 97.5], method="nearest")
  return float(_first_below(errors.mean(0))), float(low), float(high)


def _first_below(means: np.ndarray) -> np.ndarray:
  below = means < GOAL
  return np.where(below.any(-1), below.argmax(-1), np.inf)


def table(results: Mapping[Cell, np.ndarray]) -> str:
  """Formats steps to 1 % error next to those of the paper.

  Args:
    results: `[seeds, steps]` errors of each cell.

  Returns:
    A Markdown table.
  """
  lines = [
    "| vocabulary | method | steps to 1 % | theirs | difference | seeds | error, last |",
    "| ---: | --- | ---: | ---: | ---: | ---: | ---: |",
  ]
  for cell, errors in results.items():
    ours, low, high = steps_to_goal(errors)
    limit = errors.shape[-1]
    low_text, high_text = (_count(x, limit) for x in (low, high))
    cells = (
      str(cell.vocab),
      cell.method,
      f"{_count(ours, limit)} [{low_text}, {high_text}]",
      str(cell.theirs),
      f"{ours - cell.theirs:+.0f}" if math.isfinite(ours) else "not reached",
      str(len(errors)),
      f"{errors[:, -1].mean():.3%} at {limit}",
    )
    lines.append(f"| {' | '.join(cells)} |")
  return "\n".join(lines) + "\n"


def _count(step: float, limit: int) -> str:
  return f"{step:.0f}" if math.isfinite(step) else f"over {limit}"


def draw(results: Mapping[Cell, np.ndarray]) -> Figure:
  """Draws errors by steps, a panel for each vocabulary, with 95 % bands over seeds.

  Args:
    results: `[seeds, steps]` errors of each cell.

  Returns:
    A figure. Triangles are the steps to 1 % of the paper.
  """
  vocabs = sorted({cell.vocab for cell in results})
  cells = [[[Cell(vocab, method) for method in THEIRS] for vocab in vocabs]]
  figure = Figure((1.5 + 3.4 * len(vocabs), 3.8), layout="constrained")
  title = "Token reversal: mean error with 95 % bands"
  panels = draw_panels(figure, title, cells, results, _draw_cell)
  for panel, vocab in zip(panels[0], vocabs, strict=True):
    panel.axhline(GOAL, color="black", linewidth=0.7, linestyle="--")
    panel.set(title=f"{vocab} tokens", yscale="log")
    panel.set_ylim(1e-4, 1)
  panels[0][0].set_ylabel("fraction of wrong tokens")
  return figure


def draw_panels(
  figure: Figure,
  title: str,
  cells: Sequence[Sequence[Sequence[Any]]],
  results: Mapping[Any, np.ndarray],
  draw_cell: Callable[[object, Any, np.ndarray, str], object],
) -> np.ndarray:
  """Draws a grid of panels, each with a line for every method.

  Args:
    figure: empty figure.
    title: title of the figure.
    cells: cells of the methods, by row and column of their panel.
    results: `[seeds, steps]` errors of the cells that are drawn.
    draw_cell: draws errors of a cell in a panel, in a color; returns its line.

  Returns:
    `[rows, columns]` axes.
  """
  FigureCanvasAgg(figure)
  figure.suptitle(title, fontsize=11)
  panels = figure.subplots(len(cells), len(cells[0]), squeeze=False, sharey=True)
  handles: dict[str, object] = {}
  for panel, methods in zip(panels.flat, itertools.chain(*cells), strict=True):
    for number, cell in enumerate(methods):
      if cell in results:
        handles[cell.method] = draw_cell(panel, cell, results[cell], f"C{number}")
    panel.set_xlabel("steps")
    panel.grid(alpha=0.3)
  figure.legend(handles.values(), handles.keys(), loc="outside right upper", fontsize=8)
  return panels


def _draw_cell(panel: object, cell: Cell, errors: np.ndarray, color: str) -> object:
  """Draws a method in a panel; returns its line."""
  line = draw_band(panel, np.arange(errors.shape[-1]), errors, color)
  panel.plot(cell.theirs, GOAL, marker="v", color=color, markersize=6)
  return line


def draw_band(panel: object, steps: np.ndarray, errors: np.ndarray, color: str) -> object:
  """Draws the mean over seeds, with a 95 % band if there are several.

  Args:
    panel: axes to draw in.
    steps: `[steps]` positions.
    errors: `[seeds, steps]` errors.
    color: color of line and band.

  Returns:
    The line.
  """
  mean = errors.mean(0)
  if len(errors) > 1:
    mean, low, high = (x[0] for x in over_seeds(errors[None]))
    panel.fill_between(steps, low, high, color=color, alpha=0.18, linewidth=0)
  return panel.plot(steps, mean, color=color, linewidth=1.3)[0]
