"""Summaries of a study over its seeds: means with intervals, areas, and steps to a goal."""

import dataclasses

import jax
import numpy as np

from pgax.ops.evaluation import Estimate, bootstrap
from pgax.study.engine import EVALUATION
from pgax.study.runs import Study

_KEY = 0  # of the resamples, which are the same in every summary


@dataclasses.dataclass(frozen=True)
class Summary:
  """What a setting's seeds came to, by one metric.

  Attributes:
    final: mean of the last values over seeds, with its 95 % interval.
    area: mean over seeds of the area under the curve, divided by the number of steps, with
      its interval.
    goal_step: mean over seeds of the first step at the goal, with its interval; of the
      seeds that reached it.
    reached: number of seeds that reached the goal.
    seconds: mean seconds of a run.
  """

  final: Estimate
  area: Estimate
  goal_step: Estimate
  reached: int
  seconds: float


def steps_of(study: Study, metric: str) -> np.ndarray:
  """Returns the number of steps done at each value of a metric."""
  count = study.metrics[metric].shape[-1]
  if metric.startswith(EVALUATION):
    return np.arange(count) * study.eval_every
  return np.arange(1, count + 1)


def over_seeds(values: np.ndarray) -> Estimate:
  """Mean over seeds with its 95 % bootstrap interval.

  Args:
    values: `[settings, seeds, ...]`; values that are not finite are left out.

  Returns:
    An `Estimate` of `[settings, ...]`.
  """
  seeds_last = np.moveaxis(values, 1, -1)
  estimate = jax.jit(bootstrap)(seeds_last, jax.random.key(_KEY))
  return Estimate(*map(np.asarray, estimate))


def summarize(study: Study, metric: str, goal: float) -> dict[str, Summary]:
  """Summarizes a metric of every setting.

  Args:
    study: the study.
    metric: name of the metric, which is better if it is larger.
    goal: value to reach.

  Returns:
    A `Summary` of each setting, by its name.
  """
  values, steps = study.metrics[metric], steps_of(study, metric)
  if len(steps) > 1:
    areas = np.trapezoid(values, steps, axis=-1) / (steps[-1] - steps[0])
  else:
    areas = values[..., 0]
  at_goal = values >= goal
  first = np.where(at_goal.any(-1), steps[at_goal.argmax(-1)], np.nan)
  final, area, reach = map(over_seeds, (values[..., -1], areas, first))
  return {
    name: Summary(
      final=_take(final, x),
      area=_take(area, x),
      goal_step=_take(reach, x),
      reached=int(at_goal[x].any(-1).sum()),
      seconds=float(study.metrics["time/run"][x].mean()),
    )
    for x, name in enumerate(study.settings)
  }


def _take(estimate: Estimate, index: int) -> Estimate:
  return Estimate(*(float(x[index]) for x in estimate))
