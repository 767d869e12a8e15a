"""Curves of several settings in one picture, with bands over seeds."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure


class Band(NamedTuple):
  """The curve of a setting.

  Attributes:
    mean: `[points]` mean over seeds.
    low: `[points]` lower end of its interval.
    high: `[points]` upper end of its interval.
  """

  mean: np.ndarray
  low: np.ndarray
  high: np.ndarray


def draw_bands(
  bands: Mapping[str, Band],
  axes: Mapping[str, Mapping[str, np.ndarray]],
  title: str,
  label: str,
  logarithmic: bool = False,
) -> Figure:
  """Draws the curves of all settings, once for each horizontal axis.

  Args:
    bands: curve of each setting, by its name.
    axes: for each horizontal axis, by its label, the positions of each setting's points.
    title: title of the figure.
    label: label of the vertical axis.
    logarithmic: whether the vertical axis is logarithmic.

  Returns:
    A figure with a panel for each horizontal axis.
  """
  figure, panels = _figure(len(axes), title, sharey=True)
  for panel, (name, positions) in zip(panels, axes.items(), strict=True):
    _draw_panel(panel, bands, positions, name)
    if logarithmic:
      panel.set_yscale("log")
  panels[0].set_ylabel(label, fontsize=9)
  _add_legend(figure, panels[0])
  return figure


def draw_metrics(
  metrics: Mapping[str, Mapping[str, Band]],
  positions: Mapping[str, np.ndarray],
  title: str,
  axis: str = "steps",
) -> Figure:
  """Draws several metrics of all settings, each in a panel with its own vertical axis.

  Args:
    metrics: curves of each metric, by its label: the curve of each setting, by its name.
    positions: positions of the points of each metric, by its label.
    title: title of the figure.
    axis: label of the horizontal axes.

  Returns:
    A figure with a panel for each metric.
  """
  figure, panels = _figure(len(metrics), title, sharey=False)
  for panel, (label, bands) in zip(panels, metrics.items(), strict=True):
    _draw_panel(panel, bands, dict.fromkeys(bands, positions[label]), axis)
    panel.set_ylabel(label, fontsize=9)
  _add_legend(figure, panels[0])
  return figure


def _figure(count: int, title: str, sharey: bool) -> tuple[Figure, Sequence[Axes]]:
  """A figure with panels in a row."""
  figure = Figure(figsize=(1 + 4.5 * count, 4.2), layout="constrained")
  FigureCanvasAgg(figure)
  figure.suptitle(title, fontsize=11)
  return figure, figure.subplots(1, count, squeeze=False, sharey=sharey)[0]


def _draw_panel(
  panel: Axes, bands: Mapping[str, Band], positions: Mapping[str, np.ndarray], axis: str
) -> None:
  """Draws the curve of every setting."""
  colors = _colors(len(bands))
  for color, (setting, band) in zip(colors, bands.items(), strict=True):
    at = positions[setting]
    panel.plot(at, band.mean, color=color, label=setting, linewidth=1.4)
    panel.fill_between(at, band.low, band.high, color=color, alpha=0.18, linewidth=0)
  panel.set_xlabel(axis, fontsize=9)
  panel.tick_params(labelsize=8)
  panel.grid(alpha=0.3)


def _add_legend(figure: Figure, panel: Axes) -> None:
  """Adds one legend for all panels, beside them."""
  handles, labels = panel.get_legend_handles_labels()
  columns = 1 + (len(labels) - 1) // 14
  figure.legend(handles, labels, loc="outside right upper", fontsize=7, ncols=columns)


def _colors(count: int) -> Sequence[tuple[float, ...]]:
  """Colors that differ: those of a list up to its length, and then those of a map."""
  if count <= 10:
    return [colormaps["tab10"](index) for index in range(count)]
  return [colormaps["turbo"](x) for x in np.linspace(0.03, 0.97, count)]
