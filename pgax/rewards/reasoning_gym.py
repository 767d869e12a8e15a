"""The verifiers of reasoning-gym; an extra."""

import dataclasses
import functools
import importlib.util
import json
import math
from collections.abc import Mapping
from typing import Any

from pgax.rewards.answers import tagged_answer
from pgax.types import NO_METADATA

# Those that hand the answer to Python's `eval`, or to sympy's parser, which does
# (reasoning-gym 0.1.25): a model may write anything there, such as a call of `os.system`.
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


def require_reasoning_gym() -> None:
  """Makes sure that the extra is there, without loading it; raises ValueError."""
  if importlib.util.find_spec("reasoning_gym") is None:
    raise ValueError("reasoning-gym is not there: pip install 'pgax[reasoning_gym]'")


def make_dataset(name: str, settings: Mapping[str, Any]) -> Any:
  """A dataset of reasoning-gym.

  Args:
    name: of the task, such as `chain_sum`.
    settings: of its configuration, `seed` and `size` among them.

  Returns:
    A `reasoning_gym.dataset.ProceduralDataset`.

  Raises:
    ValueError: for an unknown name or setting, or a value that the task refuses.
  """
  require_reasoning_gym()
  from reasoning_gym.factory import DATASETS  # it loads some of its data

  names = sorted(DATASETS.keys() - {"composite"})  # a mixture is made by `data.mixture`
  if name not in names:
    raise ValueError(f"the task is {name!r}; allowed are {', '.join(names)}")
  make, make_config = DATASETS[name]
  allowed = sorted(field.name for field in dataclasses.fields(make_config))
  for setting in settings:
    if setting not in allowed:
      raise ValueError(
        f"{name} has no setting {setting!r}; allowed are {', '.join(allowed)}"
      )
  try:
    return make(make_config(**settings))
  except (AssertionError, TypeError) as error:
    raise ValueError(f"{name} refuses {dict(settings)}: {error}") from None


@functools.lru_cache(maxsize=32)
def _verifier(name: str, settings: str) -> Any:
  return make_dataset(name, json.loads(settings) | {"seed": 0, "size": 1})


@dataclasses.dataclass(frozen=True)
class ReasoningGym:
  """Scores an answer by the verifier of the task that the problem is of.

  For problems of `pgax.tasks.reasoning_gym`, whose metadata name the task. The answer is
  what stands in the last `<answer>...</answer>`; or else behind the last `####`, to the end
  of the line; or else the whole completion. Some verifiers give a part of the reward for an
  answer that is nearly right.

  Attributes:
    evaluate: whether to use verifiers that evaluate the answer as Python, see `EVALUATING`;
      what the model writes then runs, unguarded, in the process that scores.
  """

  evaluate: bool = False

  def __post_init__(self):
    require_reasoning_gym()

  def __call__(
    self,
    prompt: str,
    completion: str,
    ground_truth: str,
    metadata: Mapping[str, Any] = NO_METADATA,
  ) -> dict[str, float]:
    """Scores a completion.

    Args:
      prompt: not looked at.
      completion: the text to score.
      ground_truth: not looked at; the verifier knows the answer.
      metadata: `task`, its name; `settings`; and `entry`, the problem as it is there.

    Returns:
      `reward`, in [0, 1] or nan where the verifier fails on the answer; and `accuracy`, 1.0
      where the whole reward is given.

    Raises:
      ValueError: if the metadata are of another kind of problem, or the verifier is one of
        `EVALUATING` and that is not allowed.
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
        f"the verifier of {name!r} evaluates the model's answer as Python; that is done "
        "with evaluate=True only, which lets the model run any code"
      )
    verifier = _verifier(name, json.dumps(metadata["settings"], sort_keys=True))
    try:
      reward = float(verifier.score_answer(tagged_answer(completion), metadata["entry"]))
    except Exception:  # of any kind: what an answer may do to a verifier has no end
      reward = math.nan
    accuracy = float(reward >= 1) if math.isfinite(reward) else math.nan
    return {"reward": reward, "accuracy": accuracy}
