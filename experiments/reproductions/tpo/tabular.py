"""Runs TPO's bandits: `python -m experiments.reproductions.tpo.tabular --workdir=DIR`.

Writes `bandits.md`, with final errors next to those that the authors' code prints, and
`bandits.png`. 100 seeds of all methods take seconds.
"""

from pathlib import Path

import numpy as np
from absl import flags

from experiments import program
from experiments.reproductions.tpo import bandits
from experiments.study_report import interval
from pgax.report import Band, draw_bands
from pgax.study import over_seeds, run_program

_WORKDIR = flags.DEFINE_string("workdir", None, "Folder of the results.", required=True)
_SEEDS = flags.DEFINE_integer("seeds", 100, "Number of seeds.", lower_bound=2)
# Mean final error of 100 seeds of the authors' code, by task and method.
THEIRS = {
  "one context": {
    "PG": 0.0010121495,
    "DG": 5.25403e-05,
    "GRPO": 0.0026992762,
    "TPO": 5.1488878e-05,
  },
  "100 contexts": {
    "PG": 0.0060692425,
    "DG": 0.0020584,
    "GRPO": 0.00052622776,
    "TPO": 0.0004030626,
    "CE": 0.00033728583,
  },
}


def main() -> int:
  """Runs both bandits, and prints the table."""
  workdir, seeds = Path(_WORKDIR.value), _SEEDS.value
  workdir.mkdir(parents=True, exist_ok=True)
  lines = [
    "| task | method | error, last | theirs | difference | steps to 1 % |",
    "| --- | --- | ---: | ---: | ---: | ---: |",
  ]
  for task, make, methods in (
    ("one context", bandits.single_context, bandits.METHODS),
    ("100 contexts", bandits.many_contexts, bandits.CONTEXT_METHODS),
  ):
    errors = {
      method: run_program(make(method), [{}], range(seeds), at_once=seeds, progress=False)[
        "error"
      ]
      for method in methods
    }
    lines += [row(task, method, x) for method, x in errors.items()]
    bands = {method: Band(*(y[0] for y in over_seeds(x))) for method, x in errors.items()}
    steps = dict.fromkeys(bands, np.arange(next(iter(errors.values())).shape[-1]))
    figure = draw_bands(bands, {"steps": steps}, f"TPO: {task}", "error", logarithmic=True)
    figure.savefig(workdir / f"{task.replace(' ', '_')}.png", dpi=110)
  text = "\n".join(lines) + "\n"
  (workdir / "bandits.md").write_text(text)
  print(text)
  return 0


def row(task: str, method: str, errors: np.ndarray) -> str:
  """A row of the table.

  Args:
    task: name of the task.
    method: name of the method.
    errors: `[1, seeds, steps]`.

  Returns:
    A line of Markdown: the last error with its 95 % interval, that of the authors' code,
    and the first step at which the mean error is at most 1 %.
  """
  last, mean = over_seeds(errors[..., -1]), errors[0].mean(0)
  theirs = THEIRS[task][method]
  reached = np.flatnonzero(mean <= 0.01)
  cells = (
    task,
    method,
    interval([x[0] for x in last], "{:.4%}"),
    f"{theirs:.4%}",
    f"{last.mean[0] - theirs:+.4%}",
    str(reached[0]) if len(reached) else "not reached",
  )
  return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
  program.run(main)
