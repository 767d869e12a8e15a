"""Seeds a second of a study next to the loop: `python -m experiments.benchmarks.study`.

Prints, for TPO's bandits, with `--token_reversal` for a few steps of token reversal, and
with `--default_job` for a few of the default job, the seconds of a seed in a loop of
compiled steps, run once a seed, and in a study, both in this process and without
compilation.
"""

import dataclasses
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
from absl import flags

from experiments import program
from experiments.benchmarks.report import table
from experiments.configs import grpo
from experiments.reproductions.tpo import bandits
from experiments.reproductions.tpo.reversal import token_reversal
from experiments.reproductions.tpo.reversal_rollout import Task
from pgax.data import byte_tokenizer
from pgax.runs.loggers import read_metrics
from pgax.study import Program, policy_program, run_program
from pgax.training import build, train, with_settings

_SEEDS = flags.DEFINE_integer("seeds", 100, "Seeds of the bandits.", lower_bound=1)
_TOKEN_REVERSAL = flags.DEFINE_bool("token_reversal", False, "Whether to measure it, too.")
_DEFAULT_JOB = flags.DEFINE_bool("default_job", False, "Whether to measure it, too.")
_STEPS, _LOOP_SEEDS = 8, 3
_AT_ONCE = 10  # whose arrays fit into the caches of a CPU
_REVERSAL_STEPS, _REVERSAL_SEEDS = 20, 4


def main() -> int:
  """Measures, and prints a table."""
  rows = [("task", "loop, s a seed", "study, s a seed", "ratio")]
  for name, make in (
    ("bandit, one context", bandits.single_context),
    ("bandit, 100 contexts", bandits.many_contexts),
  ):
    made = make("TPO")
    study = _study_seconds(made, _SEEDS.value, _AT_ONCE)
    rows.append(_row(name, _loop_seconds(made), study))
  if _TOKEN_REVERSAL.value:
    made = token_reversal("TPO", Task(vocab=2), _REVERSAL_STEPS)
    loop = _loop_seconds(made)
    for at_once in (1, _REVERSAL_SEEDS):
      name = f"token reversal, {_REVERSAL_STEPS} steps, {at_once} at once"
      rows.append(_row(name, loop, _study_seconds(made, _REVERSAL_SEEDS, at_once)))
  if _DEFAULT_JOB.value:
    rows.append(_row("default job", *_default_job()))
  print(table(rows))
  return 0


def _row(name: str, loop: float, study: float) -> tuple[str, ...]:
  return name, f"{loop:.4f}", f"{study:.4f}", f"{loop / study:.1f}"


def _loop_seconds(made: Program) -> float:
  """Seconds of a seed, by a call of the compiled step for each step."""
  step = jax.jit(made.step)

  def run(seed: int) -> None:
    state = jax.tree.map(lambda x: x[0], made.start({}, [seed]))
    for index in range(made.steps):
      state, metrics = step({}, state, (), jnp.int32(index))
      float(metrics["error"])  # as the loop logs it

  run(0)
  started = time.perf_counter()
  for seed in range(_LOOP_SEEDS):
    run(seed)
  return (time.perf_counter() - started) / _LOOP_SEEDS


def _study_seconds(made: Program, seeds: int, at_once: int) -> float:
  """Seconds of a seed in a study of many."""
  metrics = run_program(made, [{}], range(seeds), at_once=at_once, progress=False)
  return float(metrics["time/run"].mean())


def _default_job() -> tuple[float, float]:
  """Seconds of a seed of a few steps, without evaluations, by the loop and by a study."""
  few = {"evaluation.every": _STEPS, "evaluation.problems": 1}
  settings = {"supervised.steps": 0, "steps": _STEPS, **few}
  run, tokenizer = build(with_settings(grpo.get_config(), settings)), byte_tokenizer()
  made = dataclasses.replace(policy_program(run, tokenizer), evaluate=None, eval_every=0)
  metrics = run_program(made, [{}], [0, 1], at_once=1, progress=False)
  with tempfile.TemporaryDirectory() as folder:
    train(run, tokenizer, Path(folder) / "run", progress=False, loggers=("jsonl",))
    rows = read_metrics(Path(folder) / "run")
  steps = [row for row in rows if "time/train" in row][1:]  # the first one compiles
  seconds = [sum(row[f"time/{x}"] for x in ("rollout", "reward", "train")) for row in steps]
  return _mean(seconds) * _STEPS, float(metrics["time/run"].mean())


def _mean(values: Sequence[float]) -> float:
  return sum(values) / len(values)


if __name__ == "__main__":
  program.run(main)
