"""Completions as HTML, with tokens colored by advantage or log-probability."""

import html
from collections.abc import Mapping, Sequence

_GOOD, _BAD, _UNLIKELY = "46,160,67", "218,54,51", "31,111,235"
_FULL_COLOR_NATS = 3.0


def _tint(rgb: str, strength: float) -> str:
  return f"rgba({rgb},{min(max(strength, 0.0), 1.0):.2f})"


def advantage_color(advantage: float, scale: float) -> str:
  """Returns a CSS color: green above 0, red below, of full strength at `scale`."""
  rgb = _GOOD if advantage > 0 else _BAD
  return _tint(rgb, 0.75 * abs(advantage) / scale if scale else 0.0)


def logp_color(logp: float) -> str:
  """Returns a CSS color: the less likely the bluer, of full strength at -3 nats."""
  return _tint(_UNLIKELY, abs(logp) / _FULL_COLOR_NATS)


def _largest_advantage(samples: Sequence[Mapping]) -> float:
  sizes = [abs(a) for sample in samples for a in sample.get("advantages") or () if a]
  return max(sizes, default=0.0)


def completion_html(sample: Mapping, scale: float | None = None) -> str:
  """Renders a completion as spans, each with both colors, and its numbers on hover.

  Args:
    sample: row of `samples.jsonl`.
    scale: advantage of full color strength; None uses the completion's largest one.

  Returns:
    HTML; the style sheet of the page chooses between the colors `--a` and `--l`.
  """
  advantages = sample.get("advantages") or [None] * len(sample["tokens"])
  scale = _largest_advantage([sample]) if scale is None else scale
  spans = []
  for token, logp, advantage in zip(
    sample["tokens"], sample["logp"], advantages, strict=True
  ):
    style, hover = [], []
    if logp is not None:
      style.append(f"--l:{logp_color(logp)}")
      hover.append(f"log-prob {logp:.3f}")
    if advantage is not None:
      style.append(f"--a:{advantage_color(advantage, scale)}")
      hover.append(f"advantage {advantage:+.3f}")
    text = html.escape(token).replace("\n", "&#9166;")
    spans.append(
      f'<span class="t" style="{";".join(style)}" title="{", ".join(hover)}">{text}</span>'
    )
  return "".join(spans)


def _title(sample: Mapping) -> str:
  """A tooltip with the text that the policy read, if it is longer than the prompt."""
  rendered = sample.get("rendered_prompt", "")  # rows of earlier versions have none
  return f' title="{html.escape(rendered)}"' if rendered else ""


def samples_html(samples: Sequence[Mapping]) -> str:
  """Renders a table of prompts, completions and rewards, on one color scale."""
  rows, scale = [], _largest_advantage(samples)
  for sample in samples:
    reward = sample["reward"]
    cell = "&ndash;" if reward is None else f"{reward:g}"
    mark = "good" if sample["right"] else "bad"
    note = "" if sample["finished"] else ' <span class="note">truncated</span>'
    rows.append(
      f'<tr><td class="p"{_title(sample)}>{html.escape(sample["prompt"])}</td>'
      f'<td class="c">{completion_html(sample, scale)}{note}</td>'
      f"<td>{html.escape(sample['ground_truth'])}</td>"
      f'<td class="{mark}">{cell}</td></tr>'
    )
  head = "<tr><th>prompt</th><th>completion</th><th>ground truth</th><th>reward</th></tr>"
  return f"<table>{head}{''.join(rows)}</table>"
