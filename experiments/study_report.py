"""The output of a study: a table, a picture with bands, and its numbers."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from pgax.report import Band, draw_bands
from pgax.study import Study, Summary, over_seeds, steps_of, summarize


def write_study(study: Study, folder: Path, title: str, metric: str, goal: float) -> str:
  """Writes `table.md`, `curves.png` and `metrics.npz`.

  Args:
    study: the study.
    folder: folder to write to.
    title: title of the picture.
    metric: name of the metric, which is better if it is larger.
    goal: value of the metric that the table counts steps to.

  Returns:
    The table, in Markdown.
  """
  text = table(summarize(study, metric, goal), len(study.seeds), metric, goal)
  write_files(study, folder, text, draw(study, title, metric))
  return text


def write_files(study: Study, folder: Path, text: str, figure: Figure) -> None:
  """Writes the table, the picture and the metrics of a study to a folder."""
  folder.mkdir(parents=True, exist_ok=True)
  (folder / "table.md").write_text(text)
  figure.savefig(folder / "curves.png", dpi=110)
  arrays = {name.replace("/", "|"): x for name, x in study.metrics.items()}
  np.savez_compressed(folder / "metrics.npz", names=np.array(study.settings), **arrays)


def table(summaries: Mapping[str, Summary], seeds: int, metric: str, goal: float) -> str:
  """Formats summaries as a Markdown table: means with their 95 % intervals."""
  lines = [
    f"| setting | {metric}, last | area under the curve | steps to {goal:g} | s per run |",
    "| --- | ---: | ---: | ---: | ---: |",
  ]
  for name, x in summaries.items():
    reach = "not reached"
    if x.reached:
      reach = interval(x.goal_step, "{:.1f}")
      reach += f" in {x.reached} of {seeds}" if x.reached < seeds else ""
    cells = (interval(x.final, "{:.3f}"), interval(x.area, "{:.3f}"), reach)
    lines.append(f"| {name} | {' | '.join(cells)} | {x.seconds:.1f} |")
  return "\n".join(lines) + "\n"


def interval(estimate: Sequence[float], form: str) -> str:
  """Formats a mean with the ends of its interval."""
  if math.isnan(estimate[0]):
    return "unknown"
  mean, low, high = (form.format(x) for x in estimate)
  return f"{mean} [{low}, {high}]"


def draw(study: Study, title: str, metric: str) -> Figure:
  """Draws a metric of every setting by steps, completions and seconds.

  Args:
    study: the study.
    title: title of the picture.
    metric: name of the metric.

  Returns:
    A figure.
  """
  means, steps = over_seeds(study.metrics[metric]), steps_of(study, metric)
  sampled = np.cumsum(study.metrics["completions/generated"], axis=-1)
  sampled = np.concatenate([np.zeros_like(sampled[..., :1]), sampled], axis=-1)
  seconds = study.metrics["time/run"].mean(-1)
  bands, by_completions, by_seconds = {}, {}, {}
  for index, name in enumerate(study.settings):
    bands[name] = Band(*(x[index] for x in means))
    by_completions[name] = sampled[index].mean(0)[steps]
    by_seconds[name] = seconds[index] * steps / max(steps[-1], 1)
  axes = {
    "steps": dict.fromkeys(study.settings, steps),
    "completions": by_completions,
    "seconds of a run": by_seconds,
  }
  return draw_bands(bands, axes, f"{title}, {len(study.seeds)} seeds, 95 % bands", metric)
