"""The settings of a study: a grid of numbers, checked before anything is compiled."""

import dataclasses
import itertools
import math
import numbers
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerFast

from pgax.algorithms import UpdateConfig, partition
from pgax.algorithms.numbers import find_numbers
from pgax.data.prompts import pad
from pgax.data.tokenizer import decode, encode_completion, token_bytes
from pgax.errors import UserError
from pgax.learner.numbers import OF_OPTIMIZER
from pgax.rewards.math import MARKER
from pgax.settings import setting_at, with_settings
from pgax.study.problems import read_answer
from pgax.training.build import build
from pgax.training.config import RunConfig
from pgax.training.preflight import check_run as check_ordinary_run
from pgax.training.preflight.settings import check_algorithm
from pgax.types import Example, TokenReward

Grid = Mapping[str, Sequence[float]]
_OPTIMIZERS = ("optimizer", "critic.optimizer", "supervised.optimizer")
# Held-out problems whose rewards on text and on tokens are compared, and the number of ways
# to cut the end of their solutions: of another reward, a whole solution may say nothing.
_COMPARED, _CUTS = 8, 10
_OTHER_OPERATORS = str.maketrans("+-*", "*+-")
_ALONE = "compute one run at a time (at_once=1)"


def built(run: RunConfig) -> RunConfig:
  """Makes a run's parts, and adds those of `policy_update` to its algorithm.

  Their numbers then are numbers of the algorithm, which a grid can vary.
  """
  run = build(run)
  algorithm = run.trained_algorithm
  return dataclasses.replace(run, algorithm=algorithm, policy_update=UpdateConfig())


def free_numbers(run: RunConfig) -> dict[str, float]:
  """Returns the numbers of a run that can differ within one program, by their paths.

  They are those of the algorithm (see `algorithms.partition`), the temperature, and
  learning rates and norms of clipping of the optimizers.
  """
  found = find_numbers(run)
  paths = [f"algorithm.{path}" for path in partition(run.algorithm).numbers]
  paths += [f"{name}.{field}" for name in _OPTIMIZERS for field in OF_OPTIMIZER]
  return {x: found[x] for x in (*paths, "sampling.temperature") if x in found}


def make_settings(run: RunConfig, grid: Grid) -> list[dict[str, float]]:
  """Combines the values of a grid.

  Args:
    run: configuration that the values replace numbers of.
    grid: values of each number, by its path in the configuration.

  Returns:
    The numbers of every setting, the first path varying slowest.

  Raises:
    UserError: if a path is none of `free_numbers`, has no values, or one that the
      configuration rejects.
  """
  free = free_numbers(run)
  for path, values in grid.items():
    _check_path(run, path, free)
    if not len(values):
      raise UserError(f"the grid's {path} has no values; give at least one number")
    for value in values:
      is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
      if not is_number or not math.isfinite(value):
        raise UserError(f"the grid's {path} has {value!r}; it must be a finite number")
    if len({*map(float, values)}) < len(values):
      raise UserError(f"the grid's {path} has a value twice: {list(values)}")
  combined = itertools.product(*grid.values())
  settings = [dict(zip(grid, map(float, values), strict=True)) for values in combined]
  for setting in settings:
    with_numbers(run, setting)
  return settings


def setting_name(setting: Mapping[str, Any]) -> str:
  """Names a setting by its values, such as `learning_rate=0.0001 clip_high=0.2`."""
  return " ".join(f"{path.rpartition('.')[2]}={x}" for path, x in setting.items())


def with_numbers(run: RunConfig, setting: Mapping[str, float]) -> RunConfig:
  """Returns a run with other numbers, whose ranges are checked.

  Raises:
    UserError: if a number is out of range.
  """
  try:
    run = with_settings(run, setting)
    check_algorithm(run)
  except ValueError as error:
    listed = ", ".join(f"{path}={value:g}" for path, value in setting.items())
    raise UserError(f"the setting {listed} of the grid: {error}") from error
  return run


def _check_path(run: RunConfig, path: str, free: Mapping[str, float]) -> None:
  if path in free:
    return
  try:
    value = setting_at(run, path)
  except UserError:
    raise UserError(
      f"the grid has {path!r}, which is no setting of this run; its numbers are "
      f"{', '.join(sorted(free))}"
    ) from None
  raise UserError(
    f"the grid has {path!r}, which is {value!r}: it decides what is compiled and is no "
    "number that can be traced. Give runs that differ in it to study.study_runs; numbers "
    f"are {', '.join(sorted(free))}"
  )


def eval_every(run: RunConfig) -> int:
  """Returns the number of steps between evaluations; one is after the last step."""
  return min(run.evaluation.every, run.steps) or 1


def check_run(run: RunConfig, tokenizer: PreTrainedTokenizerFast, at_once: int = 1) -> None:
  """Rejects a run that would fail later, or that can't share a program with others.

  Args:
    run: configuration of the run.
    tokenizer: tokenizer of the model.
    at_once: number of runs that are computed at once. A run that is computed alone is
      trained by the loop, which can do more.

  Raises:
    UserError: with the setting and the alternative, before anything is compiled.
  """
  every = eval_every(run)
  if run.steps % every:
    raise UserError(
      f"steps is {run.steps} and evaluation.every is {every}; in a study, steps must be a "
      "multiple of it"
    )
  check_ordinary_run(run, tokenizer)
  if at_once == 1:
    return
  if reason := reason_for_host(run):
    raise UserError(f"a step of this run needs the host: {reason}. Instead, {_ALONE}")
  if run.supervised.row_tokens or run.sampling.lag:
    raise UserError(
      f"supervised.row_tokens is {run.supervised.row_tokens} and sampling.lag is "
      f"{run.sampling.lag}; where several runs share a program, set them to 0, or {_ALONE}"
    )
  try:
    reward = run.task.token_reward(token_bytes(tokenizer, run.model.vocab_size))
  except ValueError as error:
    raise UserError(f"task.token_reward: {error}") from None
  _check_rewards_agree(run, tokenizer, reward)


def reason_for_host(run: RunConfig) -> str:
  """Returns why a step of a run can't be traced; empty if it can.

  Args:
    run: configuration of the run.
  """
  reasons = (
    (run.task.token_reward is None, "the task has no token_reward: text is scored there"),
    (run.algorithm.dynamic_sampling, "the algorithm has dynamic_sampling"),
    (run.step_reward, f"step_reward is {run.step_reward}"),
    (run.data.completions, f"data.completions is {run.data.completions!r}"),
    (run.reward_model.path, f"reward_model.path is {run.reward_model.path!r}"),
    (run.scoring.workers, f"scoring.workers is {run.scoring.workers}"),
    (run.critic.start not in ("policy", "fresh"), f"critic.start is {run.critic.start!r}"),
  )
  return next((text for needs_host, text in reasons if needs_host), "")


def _check_rewards_agree(
  run: RunConfig, tokenizer: PreTrainedTokenizerFast, reward: TokenReward
) -> None:
  """Compares both rewards on texts of held-out problems."""
  count = min(_COMPARED, len(run.task.held_out))
  examples = [run.task.held_out[i] for i in range(count)]
  solutions = [x.solution or x.ground_truth for x in examples]
  nothing = True
  for number, example in enumerate(examples):
    texts = [*_variants(solutions[number], example.ground_truth), solutions[number - 1]]
    rows = [encode_completion(tokenizer, text) for text in texts]
    tokens, mask = pad(rows, max(map(len, rows)))
    answer = np.array([read_answer(reward, example) or [0]])
    scores = reward(np.ones((1, 1), np.int32), tokens[None], mask[None], answer)
    for k, text in enumerate(texts):
      ours = {name: float(x[0, k]) for name, x in scores.items()}
      theirs = _scores_of_text(run, example, decode(tokenizer, tokens[k][mask[k]]))
      nothing &= not theirs["reward"]
      if any(not _is_close(ours.get(name), value) for name, value in theirs.items()):
        raise UserError(
          f"the reward of the run gives {theirs} for {text!r} and the task's token_reward "
          f"gives {ours}; a study needs a task whose token_reward is the run's reward"
        )
  if nothing:
    raise UserError(
      f"the reward of the run is 0 for the solutions of {count} held-out problems, so it "
      "can't be compared with the task's token_reward; a study needs problems with "
      "solutions, or ground truths, that the reward accepts"
    )


def _variants(solution: str, ground_truth: str) -> list[str]:
  """Texts in which rewards may differ: whole, with other operators, cut, and marked."""
  return [
    solution.translate(_OTHER_OPERATORS),
    *(solution[: len(solution) - cut] for cut in range(_CUTS)),
    f"{MARKER} {ground_truth}",
    f"<answer>{ground_truth}</answer>",
    "",
  ]


def _is_close(ours: float | None, theirs: float) -> bool:
  return ours is not None and math.isclose(ours, theirs, abs_tol=1e-6)


def _scores_of_text(run: RunConfig, example: Example, text: str) -> dict[str, float]:
  scores = run.reward(example.prompt, text, example.ground_truth, example.metadata)
  return {name: float(value) for name, value in scores.items()}
