"""Evaluation settings."""

import dataclasses

from pgax.errors import check_at_least
from pgax.rewards.answers import marked_answer
from pgax.sampling import MAX_TEMPERATURE, MIN_TEMPERATURE
from pgax.types import AnswerFn


@dataclasses.dataclass(frozen=True)
class EvaluationConfig:
  """When and how held-out problems are evaluated.

  Attributes:
    every: number of steps between evaluations; there is also one before the first step and
      one after the last.
    problems: number of held-out problems in an evaluation.
    samples: number of completions per problem.
    temperature: sampling temperature in evaluation; 0 decodes greedily and requires
      `samples=1`. Other sampling settings are the run's.
    extract_answer: extracts the answer that a completion votes for, if there are several;
      None for no vote.
  """

  every: int = 5
  problems: int = 256
  samples: int = 1
  temperature: float = 0.0
  extract_answer: AnswerFn | None = marked_answer

  def __post_init__(self):
    check_at_least(self, 1, "every", "problems")
    check_sampling(self.samples, self.temperature, "evaluation.")


def check_sampling(samples: int, temperature: float, prefix: str = "") -> None:
  """Rejects numbers of samples and temperatures that don't go together.

  Args:
    samples: number of completions per problem.
    temperature: sampling temperature; 0 decodes greedily.
    prefix: prefix of both settings' names in messages.

  Raises:
    ValueError: if there are no samples, the temperature is out of its range, or several
      samples are decoded greedily.
  """
  if samples < 1:
    raise ValueError(f"{prefix}samples is {samples}; it must be at least 1")
  if temperature and not MIN_TEMPERATURE <= temperature <= MAX_TEMPERATURE:
    raise ValueError(
      f"{prefix}temperature is {temperature}; it must be 0, or from {MIN_TEMPERATURE} to "
      f"{MAX_TEMPERATURE}"
    )
  if samples > 1 and not temperature:
    raise ValueError(
      f"{prefix}samples is {samples} and {prefix}temperature is {temperature}; all greedy "
      "completions of a problem are the same. Take 1 sample, or a temperature above 0"
    )
