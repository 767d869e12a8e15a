"""The report of a run: learning curves and completions, as figures and HTML."""

from pgax.report.bands import Band, draw_bands, draw_metrics
from pgax.report.curves import draw_curves
from pgax.report.page import write_report
from pgax.report.tokens import completion_html, samples_html

__all__ = [
  "Band",
  "completion_html",
  "draw_bands",
  "draw_curves",
  "draw_metrics",
  "samples_html",
  "write_report",
]
