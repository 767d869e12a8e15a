"""Tasks of reasoning-gym: generated problems and their verifiers; an extra."""

import dataclasses
import functools
import importlib.util
import json
import math
import random
from collections.abc import Mapping
from typing import Any

from pgax.data.task import Task
from pgax.data.templates import fill
from pgax.rewards.answers import clean, exact_number, extract_answer, tagged_answer
from pgax.rewards.numbers import last_number
from pgax.rewards.tokens import spelled_tokens
from pgax.types import NO_METADATA, Example, Metadata

# Tasks whose verifiers pass the answer to Python's `eval`, or to sympy's parser, which
# calls `eval` (reasoning-gym 0.1.25). The answer may be anything, such as a call of
# `os.system`.
EVALUATING = frozenset(
  {
    "binary_matrix",
    "countdown",
    "intermediate_integration",
    "n_queens",
    "polynomial_multiplication",
    "puzzle24",
    "simple_integration",
    "spiral_matrix",
    "string_insertion",
  }
)
# Verifiers that exist as functions of arrays, too.
_TOKEN_REWARDS = {"spell_backward": spelled_tokens}
# How often a training problem is drawn again if it is a held-out one.
_MAX_REDRAWS = 7


def _require_reasoning_gym() -> None:
  """Checks that reasoning-gym is installed, without importing it."""
  if importlib.util.find_spec("reasoning_gym") is None:
    raise ValueError("reasoning-gym is not installed: pip install 'pgax[reasoning_gym]'")


def _make_dataset(name: str, settings: Mapping[str, Any]) -> Any:
  """Creates a `reasoning_gym.dataset.ProceduralDataset`.

  Args:
    name: name of the task, such as `chain_sum`.
    settings: fields of the task's configuration, including `seed` and `size`.

  Returns:
    The dataset.

  Raises:
    ValueError: if the task does not know the name, a setting or its value.
  """
  _require_reasoning_gym()
  from reasoning_gym.factory import DATASETS  # slow to import

  names = sorted(DATASETS.keys() - {"composite"})  # use `data.mixture` instead
  if name not in names:
    raise ValueError(f"the task is {name!r}; allowed are {', '.join(names)}")
  dataset, make_config = DATASETS[name]
  allowed = sorted(field.name for field in dataclasses.fields(make_config))
  for setting in settings:
    if setting not in allowed:
      raise ValueError(
        f"{name} has no setting {setting!r}; allowed are {', '.join(allowed)}"
      )
  try:
    return dataset(make_config(**settings))
  except (AssertionError, TypeError) as error:
    raise ValueError(f"{name} rejects {dict(settings)}: {error}") from None


@functools.lru_cache(maxsize=32)
def _verifier(name: str, settings: str) -> Any:
  return _make_dataset(name, json.loads(settings) | {"seed": 0, "size": 1})


@dataclasses.dataclass(frozen=True)
class ReasoningGym:
  """Scores an answer by the verifier of the problem's task.

  The answer is the contents of the last `<answer>...</answer>`, or else the rest of the
  line after the last `####`, or else the entire completion. If that is not right and the
  problem's answer is a number, the answer is the one that `answers.extract_answer` finds in
  the completion, such as the 13 in `The final answer is 13.`. Some verifiers give partial
  rewards.

  Attributes:
    evaluate: whether to allow verifiers that evaluate the answer as Python (`EVALUATING`).
      Model-written code then runs without a sandbox in the process that scores it.
  """

  evaluate: bool = False

  def __post_init__(self):
    _require_reasoning_gym()

  def __call__(
    self, prompt: str, completion: str, ground_truth: str, metadata: Metadata = NO_METADATA
  ) -> dict[str, float]:
    """Scores a completion.

    `ground_truth` is not used, because the verifier knows the answer. `metadata` has
    `task`, its name; `settings` of the task; and `entry`, the problem as reasoning-gym
    generated it.

    Returns:
      `reward`, in [0, 1], or nan if the verifier fails on the answer; and `accuracy`, 1.0
      if the full reward is given and 0.0 otherwise, or nan.

    Raises:
      ValueError: if the metadata is not that of `reasoning_gym`, or the task is one of
        `EVALUATING` and `evaluate` is False.
    """
    del prompt, ground_truth
    missing = {"task", "settings", "entry"} - metadata.keys()
    if missing:
      raise ValueError(
        f"the metadata has no {sorted(missing)}; ReasoningGym scores problems of "
        "pgax.tasks.reasoning_gym"
      )
    name = metadata["task"]
    if name in EVALUATING and not self.evaluate:
      raise ValueError(
        f"the verifier of {name!r} evaluates the model's answer as Python; this needs "
        "evaluate=True, which lets the model run any code"
      )
    verifier = _verifier(name, json.dumps(metadata["settings"], sort_keys=True))
    reward = _score(verifier, tagged_answer(completion), metadata["entry"])
    if not reward >= 1 and (number := _number_in(completion, metadata["entry"])):
      reward = _score(verifier, number, metadata["entry"])
    accuracy = float(reward >= 1) if math.isfinite(reward) else math.nan
    return {"reward": reward, "accuracy": accuracy}


def _score(verifier: Any, answer: str, entry: Mapping[str, Any]) -> float:
  try:
    return float(verifier.score_answer(answer, entry))
  except Exception:  # an answer can break a verifier in any way
    return math.nan


def _number_in(completion: str, entry: Mapping[str, Any]) -> str | None:
  """Extracts a number from a sentence, if the problem's answer is one."""
  if entry["answer"] is None or exact_number(str(entry["answer"])) is None:
    return None
  answer = extract_answer(completion) or ""
  return clean(answer) if exact_number(answer) is not None else last_number(answer)


@dataclasses.dataclass(frozen=True, eq=False)
class GymProblems:
  """Random access to training problems.

  Attributes:
    name: name of the task.
    settings: fields of the task's configuration.
    template: prompt with `{prompt}` in place of the question.
    size: number of problems.
    stride: distance in the dataset between a problem and its replacement.
    dataset: dataset of reasoning-gym.
    held_out: questions that are held out.
  """

  name: str
  settings: Mapping[str, Any]
  template: str
  size: int
  stride: int
  dataset: Any
  held_out: frozenset[str]

  def __len__(self) -> int:
    return self.size

  def __getitem__(self, position: int) -> Example:
    if not 0 <= position < self.size:
      raise IndexError(f"position is {position}; there are {self.size} problems")
    for draw in range(_MAX_REDRAWS + 1):
      entry = _entry(self.dataset, position + draw * self.stride)
      if entry["question"] not in self.held_out:
        return _example(entry, self.name, self.settings, self.template)
    raise ValueError(
      f"{self.name} with {dict(self.settings)} has too few different problems: "
      f"{_MAX_REDRAWS + 1} draws were all among the {len(self.held_out)} held-out ones"
    )


def _entry(dataset: Any, index: int) -> Mapping[str, Any]:
  """Returns a problem of a dataset; the result does not depend on earlier calls."""
  state = random.getstate()
  # Some tasks draw from the global generator.
  random.seed(f"{dataset.seed} {index}")
  try:
    return dataset[index]
  finally:
    random.setstate(state)


def _example(
  entry: Mapping[str, Any], name: str, settings: Mapping[str, Any], template: str
) -> Example:
  # Tasks with many right answers may not give one.
  answer = "" if entry["answer"] is None else str(entry["answer"])
  return Example(
    prompt=fill(template, entry["question"]),
    ground_truth=answer,
    solution=answer,
    metadata={"task": name, "settings": settings, "entry": entry},
  )


def reasoning_gym(
  name: str,
  settings: Mapping[str, Any],
  template: str = "{prompt}\n",
  train_size: int = 5000,
  held_out_size: int = 256,
  seed: int = 0,
) -> Task:
  """Generates a task of reasoning-gym (arXiv 2505.24760); `ReasoningGym` scores it.

  Args:
    name: name of the task, such as `chain_sum`; any but `composite`.
    settings: fields of the task's configuration, such as `{"max_terms": 3}`, without `seed`
      and `size`.
    template: prompt with `{prompt}` in place of the question.
    train_size: number of training problems.
    held_out_size: number of held-out problems; none of their questions is trained on.
    seed: random seed of the task.

  Returns:
    A `Task`. A solution is the answer alone, or empty if the task does not give one.

  Raises:
    ValueError: if reasoning-gym is not installed, or an argument is invalid.
  """
  for argument, value in (("train_size", train_size), ("held_out_size", held_out_size)):
    if value < 1:
      raise ValueError(f"{argument} is {value}; it must be at least 1")
  if reserved := {"seed", "size"} & settings.keys():
    raise ValueError(
      f"settings has {sorted(reserved)}; use the arguments seed, train_size and "
      "held_out_size instead"
    )
  fill(template, "")  # checks the template
  settings, stride = dict(settings), train_size + held_out_size
  size = stride * (_MAX_REDRAWS + 1)
  dataset = _make_dataset(name, settings | {"seed": seed, "size": size})
  entries = [_entry(dataset, index) for index in range(train_size, stride)]
  questions = frozenset(entry["question"] for entry in entries)
  return Task(
    train=GymProblems(name, settings, template, train_size, stride, dataset, questions),
    held_out=tuple(_example(entry, name, settings, template) for entry in entries),
    token_reward=_TOKEN_REWARDS.get(name),
  )
