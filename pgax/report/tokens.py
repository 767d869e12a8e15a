"""Completions as HTML, every token coloured by what it was worth or how likely it was."""

import html
from collections.abc import Mapping, Sequence

_GOOD, _BAD, _UNLIKELY = "46,160,67", "218,54,51", "31,111,235"
_NATS_AT_FULL = 3.0


def _tint(rgb: str, strength: float) -> str:
  return f"rgba({rgb},{min(max(strength, 0.0), 1.0):.2f})"


def advantage_colour(advantage: float, scale: float) -> str:
  """Green above 0, red below, full at `scale`; a CSS colour."""
  rgb = _GOOD if advantage > 0 else _BAD
  return _tint(rgb, 0.75 * abs(advantage) / scale if scale else 0.0)


def logp_colour(logp: float) -> str:
  """The bluer the less likely, full at a log-probability of -3; a CSS colour."""
  return _tint(_UNLIKELY, abs(logp) / _NATS_AT_FULL)


def _largest_advantage(samples: Sequence[Mapping]) -> float:
  found = [abs(a) for sample in samples for a in sample.get("advantages") or ()]
  return max(found, default=0.0)


def completion_html(sample: Mapping, scale: float | None = None) -> str:
  """One completion as spans, each with both colours and its numbers on hover.

  Args:
    sample: a row of `samples.jsonl`.
    scale: the advantage that gets the full colour; the completion's largest by default.

  Returns:
    HTML; the page's style sheet chooses which of the colours `--a` and `--l` shows.
  """
  advantages = sample.get("advantages") or [None] * len(sample["tokens"])
  scale = _largest_advantage([sample]) if scale is None else scale
  spans = []
  for token, logp, advantage in zip(
    sample["tokens"], sample["logp"], advantages, strict=True
  ):
    style, told = [f"--l:{logp_colour(logp)}"], [f"log-prob {logp:.3f}"]
    if advantage is not None:
      style.append(f"--a:{advantage_colour(advantage, scale)}")
      told.append(f"advantage {advantage:+.3f}")
    shown = html.escape(token).replace("\n", "&#9166;")
    spans.append(
      f'<span class="t" style="{";".join(style)}" title="{", ".join(told)}">{shown}</span>'
    )
  return "".join(spans)


def samples_html(samples: Sequence[Mapping]) -> str:
  """Completions as a table, with prompt, reward and ground truth, on one colour scale."""
  rows, scale = [], _largest_advantage(samples)
  for sample in samples:
    reward = sample["reward"]
    told = "&ndash;" if reward is None else f"{reward:g}"
    mark = "good" if sample["right"] else "bad"
    cut = "" if sample["finished"] else ' <span class="cut">cut at the limit</span>'
    rows.append(
      f'<tr><td class="p">{html.escape(sample["prompt"])}</td>'
      f'<td class="c">{completion_html(sample, scale)}{cut}</td>'
      f"<td>{html.escape(sample['ground_truth'])}</td>"
      f'<td class="{mark}">{told}</td></tr>'
    )
  head = "<tr><th>prompt</th><th>completion</th><th>truth</th><th>reward</th></tr>"
  return f"<table>{head}{''.join(rows)}</table>"
