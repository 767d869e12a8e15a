"""Checks of the reward functions, by calling them."""

import dataclasses
from collections.abc import Iterator

from pgax.data.mixture import first_of_each
from pgax.rewards.pool import Job, RewardRunner
from pgax.rollout.config import ScoringConfig
from pgax.rollout.reward_model import check_score_names
from pgax.rollout.scoring import check_outcome
from pgax.sandbox import Limits
from pgax.training.config import RunConfig
from pgax.types import Example, RewardFn


def check_rewards(config: RunConfig, runner: RewardRunner) -> None:
  """Calls the reward functions on the solution of the first problem of each task.

  Args:
    config: configuration of the run.
    runner: runs the reward function.

  Raises:
    ValueError: if one of them fails.
  """
  for example in first_of_each(config.task.train):
    _check_reward(config, runner, example)


def _check_reward(config: RunConfig, runner: RewardRunner, example: Example) -> None:
  job = Job(example.prompt, example.solution, example.ground_truth, example.metadata)

  def failure(name: str, why: object) -> ValueError:
    return ValueError(
      f"{name} {getattr(config, name)!r} fails on the solution of the first problem, "
      f"{example.prompt!r}: {why}"
    )

  try:
    (outcome,) = runner([job])
  except Exception as error:
    raise failure("reward", error) from error
  # An empty solution may have no score, which is not a fault of the function.
  if outcome.reason not in ("", "nan"):
    raise failure("reward", outcome.detail)
  check_outcome(outcome)
  components = set(config.trained_algorithm.components) - {"reward"}
  if config.reward_model.path:
    components -= {"model", "function"}
  if not outcome.reason and (missing := components - outcome.scores.keys()):
    raise ValueError(
      f"algorithm.components has {min(missing)!r}; the scores of the reward are "
      f"{', '.join(sorted(outcome.scores))}"
    )
  if config.reward_model.path:
    check_score_names(outcome.scores)
  if config.step_reward is not None:
    try:
      config.step_reward(*job)
    except Exception as error:
      raise failure("step_reward", error) from error


def check_timeout(reward: RewardFn, config: ScoringConfig) -> None:
  """Checks that workers wait for sandboxes: one that ends by its own limit cleans up.

  Args:
    reward: reward function.
    config: scoring settings.

  Raises:
    ValueError: if the timeout of workers is not longer than that of a sandbox.
  """
  for limits in _sandbox_limits(reward):
    if config.workers and limits.seconds >= config.timeout_seconds:
      raise ValueError(
        f"scoring.timeout_seconds is {config.timeout_seconds} and the reward's "
        f"limits.seconds is {limits.seconds}; the timeout must be longer"
      )


def _sandbox_limits(value: object) -> Iterator[Limits]:
  """Limits of every sandbox in a reward function."""
  if isinstance(value, Limits):
    yield value
  elif dataclasses.is_dataclass(value):
    yield from _sandbox_limits(tuple(vars(value).values()))
  elif isinstance(value, tuple):
    for item in value:
      yield from _sandbox_limits(item)
