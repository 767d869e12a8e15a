"""Runs of a study one at a time: the training loop itself, whose numbers they have."""

import dataclasses
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from transformers import PreTrainedTokenizerFast

from pgax.learner.state import TrainState
from pgax.rollout.scoring import open_reward_runner
from pgax.runs.interrupt import Interrupt
from pgax.study.engine import EVALUATION, SECONDS
from pgax.study.program import Numbers
from pgax.study.settings import with_numbers
from pgax.training.config import RunConfig
from pgax.training.health import SkippedUpdates
from pgax.training.loop import Stage, run_stage
from pgax.training.run import PolicyRun
from pgax.types import PyTree

_TIMES = ("time/rollout", "time/reward", "time/train")


class _Rows:
  """A logger that keeps the metrics of a run.

  Args:
    report: called with a number of steps that are done.
  """

  def __init__(self, report: Callable[[int], None]):
    self.rows: list[Mapping[str, float]] = []
    self._report = report

  def start(self, config: Mapping[str, Any]) -> None:
    """Does nothing."""

  def scalars(self, step: int, values: Mapping[str, float]) -> None:
    """Keeps the metrics of a step, or of the evaluation before the first one."""
    self.rows.append(values)
    self._report(min(step, 1))

  def samples(self, step: int, split: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Does nothing."""

  def flush(self) -> None:
    """Does nothing."""

  def close(self) -> None:
    """Does nothing."""

  def arrays(self, steps: int) -> dict[str, np.ndarray]:
    """Returns `[1, steps]` of each metric of a step, `[1, evaluations]` of the others."""
    values: dict[str, list[float]] = {}
    for row in self.rows:
      for name, value in row.items():
        values.setdefault(name, []).append(value)
    metrics = {
      name: np.array([x], np.float32)
      for name, x in values.items()
      if name.startswith(EVALUATION) or len(x) == steps
    }
    # The first step compiles.
    seconds = sum(metrics[name][0, min(1, steps - 1) :].mean() for name in _TIMES) * steps
    return metrics | {SECONDS: np.array([seconds])}


class LoopRuns:
  """Trains the runs of a study by the loop; runs of a seed share their supervised stage.

  Args:
    run: configuration of the runs.
    tokenizer: tokenizer of the model.
    params: parameters that all policies start from; None starts as the configuration says.
  """

  def __init__(
    self, run: RunConfig, tokenizer: PreTrainedTokenizerFast, params: PyTree | None
  ):
    self._run, self._tokenizer, self._params = run, tokenizer, params
    self._trained: tuple[Any, TrainState] | None = None  # of the latest seed

  def __call__(
    self, numbers: Numbers, seed: int, report: Callable[[int], None]
  ) -> dict[str, np.ndarray]:
    """Trains a run.

    Args:
      numbers: numbers of its setting.
      seed: its seed.
      report: called with a number of steps that are done.

    Returns:
      `[1, steps]` of each metric of a step, and `[1, evaluations]` of each metric of an
      evaluation; see `run_program`.
    """
    config = dataclasses.replace(with_numbers(self._run, numbers), seed=seed)
    with open_reward_runner(config.reward, config.scoring) as runner:
      policy_run = PolicyRun(config, self._tokenizer, runner)
      state = self._start(policy_run, numbers)
      rows = _Rows(report)
      stage = policy_run.reinforcement()
      result = _run(stage, state, rows)
      for source in policy_run.sources.values():
        source.close()
    if not result.finished:
      raise KeyboardInterrupt
    return rows.arrays(config.steps)

  def _start(self, policy_run: PolicyRun, numbers: Numbers) -> TrainState:
    """Returns the state that reinforcement begins with."""
    config, learner = policy_run.config, policy_run.steps.learner
    if not config.supervised.steps:
      return policy_run.start(self._params)
    supervised = {x: v for x, v in numbers.items() if x.startswith("supervised.")}
    key = (config.seed, tuple(supervised.items()))
    if self._trained is None or self._trained[0] != key:
      stage = policy_run.supervised()
      schedule = dataclasses.replace(stage.schedule, eval_every=0, eval_first=False)
      stage = dataclasses.replace(stage, schedule=schedule, finish=lambda state: state)
      state = _run(stage, policy_run.start(self._params), _Rows(lambda _: None)).state
      self._trained = key, state
    # A step donates its state. Stateful parts have numbers of the setting.
    state = jax.tree.map(jnp.copy, self._trained[1])
    state = state.replace(algorithm_state=learner.algorithm.init())
    return policy_run.begin_reinforcement(state)


def _run(stage: Stage, state: TrainState, rows: _Rows):
  """Runs a stage without a folder."""
  folder = Path(tempfile.gettempdir()) / "pgax_study"
  with Interrupt() as interrupt:
    return run_stage(
      stage,
      state,
      logger=rows,
      save=lambda _: None,
      interrupt=interrupt,
      skipped=SkippedUpdates(folder, stage.schedule.steps + 1, lambda: None),
      progress=False,
    )
