"""Curves with bands: every panel has all settings, at its own positions."""

import numpy as np

from pgax.report import Band, draw_bands, draw_metrics


def band(*mean):
  mean = np.array(mean, float)
  return Band(mean, mean - 0.1, mean + 0.1)


def test_settings_share_the_vertical_axis_of_a_metric():
  bands = {"a": band(0.1, 0.2), "b": band(0.3, 0.4)}
  axes = {"steps": {"a": [0, 1], "b": [0, 1]}, "seconds": {"a": [0, 5], "b": [0, 9]}}
  figure = draw_bands(bands, axes, "title", "accuracy")
  first, second = figure.axes
  assert first.get_shared_y_axes().joined(first, second)
  assert [line.get_xdata().tolist() for line in second.get_lines()] == [[0, 5], [0, 9]]


def test_every_metric_has_its_own_panel_and_axis():
  metrics = {
    "accuracy": {"a": band(0.1, 0.2), "b": band(0.3, 0.4)},
    "length": {"a": band(10, 11, 12), "b": band(20, 21, 22)},
  }
  positions = {"accuracy": np.array([0, 5]), "length": np.array([1, 2, 3])}
  figure = draw_metrics(metrics, positions, "title")
  first, second = figure.axes
  assert not first.get_shared_y_axes().joined(first, second)
  assert (first.get_ylabel(), second.get_ylabel()) == ("accuracy", "length")
  line = second.get_lines()[1]
  assert line.get_xdata().tolist() == [1, 2, 3]
  assert line.get_ydata().tolist() == [20, 21, 22]
  (legend,) = figure.legends
  assert [text.get_text() for text in legend.get_texts()] == ["a", "b"]
