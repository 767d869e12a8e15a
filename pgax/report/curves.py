"""Learning curves as a figure."""

from collections.abc import Mapping, Sequence

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

# Title of a panel, unit of its axis, and labels of its metrics by name.
Panel = tuple[str, str, Mapping[str, str]]

PANELS: tuple[Panel, ...] = (
  ("accuracy and reward", "", {"eval/accuracy": "held out", "reward/mean": "reward"}),
  ("entropy", "nats per token", {"entropy": ""}),
  ("KL to the reference", "nats per token", {"kl/ref": ""}),
  ("gradient norm", "before clipping", {"grad_norm": ""}),
  (
    "groups and clip",
    "fraction",
    {"groups/zero_variance": "groups without signal", "ratio/clip_fraction": "clipped"},
  ),
  ("completion length", "tokens", {"length/mean": ""}),
  ("sampler error", "nats per token", {"ratio/sampler_error": ""}),
  (
    "time of a step",
    "seconds",
    {"time/rollout": "rollout", "time/train": "train", "time/reward": "reward"},
  ),
)


SUPERVISED_PANELS: tuple[Panel, ...] = (
  ("accuracy", "", {"eval/accuracy": "held out"}),
  ("loss", "nats per token", {"loss": ""}),
  ("gradient norm", "before clipping", {"grad_norm": ""}),
  ("padding", "fraction", {"tokens/padding": "of the rows' tokens"}),
)


def series(rows: Sequence[Mapping], name: str) -> tuple[list[int], list[float]]:
  """Returns the steps at which a metric was measured, and its values."""
  pairs = [(row["step"], row[name]) for row in rows if row.get(name) is not None]
  steps, values = zip(*pairs, strict=True) if pairs else ((), ())
  return list(steps), list(values)


def draw_curves(
  rows: Sequence[Mapping],
  title: str,
  panels: Sequence[Panel] = PANELS,
  stage: str = "reinforcement",
) -> Figure:
  """Draws the metrics of a run.

  Args:
    rows: rows of `metrics.jsonl` or `supervised.jsonl`.
    title: title of the figure.
    panels: panels to draw, four per line.
    stage: training stage whose steps are the horizontal axis.

  Returns:
    A figure of the panels. A metric `NAME` has a band from `NAME_low` to `NAME_high` if
    these were measured too.
  """
  columns = min(len(panels), 4)
  lines = -(-len(panels) // columns)
  figure = Figure(figsize=(13, 3 * lines), layout="constrained")
  FigureCanvasAgg(figure)
  figure.suptitle(title)
  grid = figure.subplots(lines, columns, squeeze=False).flat
  for axes, (name, unit, metrics) in zip(grid, panels, strict=True):
    for metric, label in metrics.items():
      steps, values = series(rows, metric)
      sparse = len(steps) < len(rows) / 2  # mark single measurements
      axes.plot(steps, values, "o-" if sparse else "-", markersize=3, label=label or None)
      low, high = (series(rows, f"{metric}_{end}") for end in ("low", "high"))
      if steps and low[0] == high[0] == steps:  # the interval was measured too
        axes.fill_between(steps, low[1], high[1], alpha=0.2, linewidth=0)
    axes.set_title(name, fontsize=10)
    axes.set_ylabel(unit, fontsize=8)
    axes.tick_params(labelsize=8)
    axes.grid(alpha=0.3)
    if not any(series(rows, metric)[0] for metric in metrics):  # no reference, for instance
      axes.text(0.5, 0.5, "not measured", ha="center", transform=axes.transAxes)
    elif any(metrics.values()):
      axes.legend(fontsize=7)
    if unit == "seconds":  # the first step compiles; on a linear scale it hides the others
      axes.set_yscale("log")
    if unit == "fraction":
      axes.set_ylim(-0.03, 1.03)
  figure.supxlabel(f"{stage} step", fontsize=9)
  return figure
