"""The report of a run: learning curves and completions, as figures and HTML."""

from pgax.report.curves import draw_curves
from pgax.report.page import write_report
from pgax.report.tokens import completion_html, samples_html

__all__ = [
  "completion_html",
  "draw_curves",
  "samples_html",
  "write_report",
]
