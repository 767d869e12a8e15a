"""The report of a run as one self-contained HTML page, with the curves as PNG files."""

import base64
import html
from collections.abc import Mapping, Sequence
from pathlib import Path

from pgax.report.curves import SUPERVISED_PANELS, draw_curves, series
from pgax.report.tokens import samples_html

_STYLE = """
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; }
body { max-width: 1100px; margin: 2rem auto; padding: 0 1rem; }
img { width: 100%; background: white; border-radius: 6px; }
table { border-collapse: collapse; width: 100%; margin: .5rem 0 1.5rem; }
th, td { text-align: left; padding: .25rem .6rem; border-bottom: 1px solid #8884;
  vertical-align: top; }
td.p, td.c { font-family: ui-monospace, monospace; font-size: 13px;
  white-space: pre-wrap; overflow-wrap: anywhere; }
td.good { color: #2ea043; } td.bad { color: #da3633; }
.note { font: italic 12px sans-serif; opacity: .7; }
.t { border-radius: 2px; padding: 1px 0; }
body:has(#by-logp:checked) .t { background: var(--l); }
body:has(#by-advantage:checked) .t { background: var(--a, none); }
.big { font-size: 1.6rem; }
"""

_SWITCH = """
<p>Tokens colored by
<label><input type="radio" name="by" id="by-advantage" checked> advantage
(green above 0, red below)</label>
<label><input type="radio" name="by" id="by-logp"> log-probability
(the bluer, the less likely)</label>; hover for the numbers.</p>
"""


def _by_step(samples: Sequence[Mapping], split: str) -> dict[int, list[Mapping]]:
  """Groups the samples of a split by step, in order."""
  groups: dict[int, list[Mapping]] = {}
  for sample in samples:
    if sample["split"] == split:
      groups.setdefault(sample["step"], []).append(sample)
  return dict(sorted(groups.items()))


def page_html(
  rows: Sequence[Mapping],
  samples: Sequence[Mapping],
  title: str,
  figures: Mapping[str, bytes],
) -> str:
  """Renders the page.

  Args:
    rows: rows of `metrics.jsonl`.
    samples: rows of `samples.jsonl`.
    title: title of the page.
    figures: PNG files of the curves, by name.

  Returns:
    HTML.
  """
  steps, accuracy = series(rows, "eval/accuracy")
  parts = [f"<h1>{html.escape(title)}</h1>"]
  if steps:
    parts.append(
      f'<p>Held-out accuracy <span class="big">{accuracy[0]:.1%} &rarr; '
      f"{accuracy[-1]:.1%}</span> from step {steps[0]} to step {steps[-1]}.</p>"
    )
  for name, png in figures.items():
    encoded = base64.b64encode(png).decode()
    parts.append(f'<img alt="{name}" src="data:image/png;base64,{encoded}">')
  parts.append(f"<h2>Training completions</h2>{_SWITCH}")
  for step, group in _by_step(samples, "train").items():
    parts.append(f"<h3>step {step}</h3>{samples_html(group)}")
  parts.append("<h2>Held-out problems</h2>")
  parts.append("<p>They are not trained on, so they have log-probabilities only.</p>")
  for step, group in _by_step(samples, "held_out").items():
    parts.append(f"<h3>after step {step}</h3>{samples_html(group)}")
  head = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8">'
    f"<title>{html.escape(title)}</title><style>{_STYLE}</style></head>"
  )
  return f"{head}<body>{''.join(parts)}</body></html>\n"


def write_report(
  rows: Sequence[Mapping],
  samples: Sequence[Mapping],
  title: str,
  folder: Path,
  supervised: Sequence[Mapping] = (),
) -> Path:
  """Writes `index.html` and its figures, `curves.png` and `supervised.png`.

  Args:
    rows: rows of `metrics.jsonl`.
    samples: rows of `samples.jsonl`.
    title: title of the page.
    folder: directory to write to, created if necessary.
    supervised: rows of `supervised.jsonl`; if empty, there is no figure of them.

  Returns:
    Path of the page.
  """
  folder.mkdir(parents=True, exist_ok=True)
  figures = {"curves": draw_curves(rows, title)}
  if supervised:
    heading = f"{title}: supervised steps"
    panels = [p for p in SUPERVISED_PANELS if any(series(supervised, x)[0] for x in p[2])]
    figures["supervised"] = draw_curves(supervised, heading, panels, "supervised")
  for name, figure in figures.items():
    figure.savefig(folder / f"{name}.png", dpi=110)
  pngs = {name: (folder / f"{name}.png").read_bytes() for name in figures}
  page = folder / "index.html"
  page.write_text(page_html(rows, samples, title, pngs), encoding="utf-8")
  return page
