"""The report of a run: one HTML page that needs nothing but itself, and the PNG."""

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
.cut { font: italic 12px sans-serif; opacity: .7; }
.t { border-radius: 2px; padding: 1px 0; }
body:has(#by-logp:checked) .t { background: var(--l); }
body:has(#by-advantage:checked) .t { background: var(--a, none); }
.big { font-size: 1.6rem; }
"""

_SWITCH = """
<p>Tokens coloured by
<label><input type="radio" name="by" id="by-advantage" checked> advantage
(green above 0, red below)</label>
<label><input type="radio" name="by" id="by-logp"> log-probability
(the bluer, the less likely)</label>; hover for the numbers.</p>
"""


def _of(samples: Sequence[Mapping], split: str) -> dict[int, list[Mapping]]:
  by_step: dict[int, list[Mapping]] = {}
  for sample in samples:
    if sample["split"] == split:
      by_step.setdefault(sample["step"], []).append(sample)
  return dict(sorted(by_step.items()))


def page_html(
  rows: Sequence[Mapping],
  samples: Sequence[Mapping],
  title: str,
  pictures: Mapping[str, bytes],
) -> str:
  """The page as text.

  Args:
    rows: of `metrics.jsonl`.
    samples: of `samples.jsonl`.
    title: of the page.
    pictures: PNG files of curves, by their names.

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
  for name, picture in pictures.items():
    encoded = base64.b64encode(picture).decode()
    parts.append(f'<img alt="{name}" src="data:image/png;base64,{encoded}">')
  parts.append(f"<h2>Training completions</h2>{_SWITCH}")
  for step, some in _of(samples, "train").items():
    parts.append(f"<h3>step {step}</h3>{samples_html(some)}")
  parts.append("<h2>Held-out problems</h2>")
  parts.append("<p>Nothing is trained on these, so they have a log-probability only.</p>")
  for step, some in _of(samples, "held_out").items():
    parts.append(f"<h3>after step {step}</h3>{samples_html(some)}")
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
  """Writes `index.html` and its pictures, `curves.png` and `supervised.png`.

  Args:
    rows: of `metrics.jsonl`.
    samples: of `samples.jsonl`.
    title: of the run.
    folder: where; made if it is not there.
    supervised: rows of `supervised.jsonl`; without any there is no picture of them.

  Returns:
    Path of the page.
  """
  folder.mkdir(parents=True, exist_ok=True)
  pictures = {"curves": draw_curves(rows, title)}
  if supervised:
    told = f"{title}: supervised steps"
    panels = [p for p in SUPERVISED_PANELS if any(series(supervised, x)[0] for x in p[2])]
    pictures["supervised"] = draw_curves(supervised, told, panels, "supervised")
  for name, figure in pictures.items():
    figure.savefig(folder / f"{name}.png", dpi=110)
  pictures = {name: (folder / f"{name}.png").read_bytes() for name in pictures}
  page = folder / "index.html"
  page.write_text(page_html(rows, samples, title, pictures), encoding="utf-8")
  return page
