"""What an ablation writes: a table, a picture of two metrics, and its numbers."""

from pathlib import Path

import numpy as np

from experiments.ablations.runs import Ablation
from experiments.study_report import interval
from pgax.report import Band, draw_metrics
from pgax.study import Study, over_seeds, steps_of, summarize

_ACCURACY = "eval/accuracy"
_LAST = 10  # steps that the second metric is averaged over: it varies from step to step


def write_ablation(study: Study, ablation: Ablation, folder: Path) -> str:
  """Writes `table.md`, `curves.png` and `metrics.npz`.

  Args:
    study: the study of the ablation's runs.
    ablation: how it is reported.
    folder: folder to write to.

  Returns:
    The table, in Markdown.
  """
  folder.mkdir(parents=True, exist_ok=True)
  text = table(study, ablation)
  (folder / "table.md").write_text(text)
  draw(study, ablation).savefig(folder / "curves.png", dpi=100)
  arrays = {name.replace("/", "|"): x for name, x in study.metrics.items()}
  np.savez_compressed(folder / "metrics.npz", names=np.array(study.settings), **arrays)
  return text


def table(study: Study, ablation: Ablation) -> str:
  """Formats means over seeds with their 95 % intervals as a Markdown table.

  Args:
    study: the study of the ablation's runs.
    ablation: how it is reported.

  Returns:
    A row for each run: the last accuracy, the area under its curve, and the ablation's
    metric, averaged over the last 10 steps.
  """
  lines = [
    f"| | accuracy, last | area under the curve | {ablation.label} |",
    "| --- | ---: | ---: | ---: |",
  ]
  # The goal counts steps, which the table leaves out.
  summaries = summarize(study, _ACCURACY, goal=1.0)
  second = over_seeds(study.metrics[ablation.metric][..., -_LAST:].mean(-1))
  for index, name in enumerate(study.settings):
    cells = (
      interval(summaries[name].final, "{:.3f}"),
      interval(summaries[name].area, "{:.3f}"),
      interval([x[index] for x in second], "{:.3g}"),
    )
    lines.append(f"| {name} | {' | '.join(cells)} |")
  return "\n".join(lines) + "\n"


def draw(study: Study, ablation: Ablation) -> object:
  """Draws accuracy and the ablation's metric by steps.

  Args:
    study: the study of the ablation's runs.
    ablation: how it is reported.

  Returns:
    A figure with two panels.
  """
  labels = {"accuracy": _ACCURACY, ablation.label: ablation.metric}
  return draw_metrics(
    {label: _bands(study, metric) for label, metric in labels.items()},
    {label: steps_of(study, metric) for label, metric in labels.items()},
    f"{ablation.title}: {len(study.seeds)} seeds, 95 % bands",
  )


def _bands(study: Study, metric: str) -> dict[str, Band]:
  means = over_seeds(study.metrics[metric])
  return {name: Band(*(x[i] for x in means)) for i, name in enumerate(study.settings)}
