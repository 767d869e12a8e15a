"""The output of an ablation: a table, a picture of two metrics, and its numbers."""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from experiments.ablations.runs import Ablation
from experiments.study_report import interval, write_files
from pgax.report import Band, draw_metrics
from pgax.study import Study, over_seeds, steps_of, summarize

_ACCURACY = "eval/accuracy"
_LAST = 10  # steps that a metric of a step is averaged over in the table


def write_ablation(study: Study, ablation: Ablation, folder: Path) -> str:
  """Writes `table.md`, `curves.png` and `metrics.npz`.

  Args:
    study: the study of the ablation's runs.
    ablation: the ablation, with the form of its report.
    folder: folder to write to.

  Returns:
    The table, in Markdown.
  """
  text = table(study, ablation)
  write_files(study, folder, text, draw(study, ablation))
  return text


def table(study: Study, ablation: Ablation) -> str:
  """Formats means over seeds with their 95 % intervals as a Markdown table.

  Args:
    study: the study of the ablation's runs.
    ablation: the ablation, with the form of its report.

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


def draw(study: Study, ablation: Ablation) -> Figure:
  """Draws accuracy and the ablation's metric by steps.

  The metric varies from step to step, so it is averaged over those before an evaluation.

  Args:
    study: the study of the ablation's runs.
    ablation: the ablation, with the form of its report.

  Returns:
    A figure with two panels.
  """
  accuracy, other = study.metrics[_ACCURACY], _averaged(study, ablation.metric)
  steps = steps_of(study, _ACCURACY)
  return draw_metrics(
    {"accuracy": _bands(study, accuracy), ablation.label: _bands(study, other)},
    {"accuracy": steps, ablation.label: steps[1:]},
    f"{ablation.title}: {len(study.seeds)} seeds, 95 % bands",
  )


def _averaged(study: Study, metric: str) -> np.ndarray:
  """A metric of a step, averaged over the steps before each evaluation."""
  values = study.metrics[metric]
  return values.reshape(*values.shape[:2], -1, study.eval_every).mean(-1)


def _bands(study: Study, values: np.ndarray) -> dict[str, Band]:
  means = over_seeds(values)
  return {name: Band(*(x[i] for x in means)) for i, name in enumerate(study.settings)}
