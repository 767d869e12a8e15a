"""Checks of the problems: their lengths, and that the model has their tokens."""

from collections.abc import Sequence

from pgax.data.demonstrations import CollateDemonstrations
from pgax.training.config import RunConfig
from pgax.types import Example

# All problems to train on are checked; if there are very many, as in generated tasks, a
# sample is.
_SAMPLE = 1_000
_MANY = 200_000


def check_lengths(config: RunConfig, demonstrations: CollateDemonstrations) -> None:
  """Checks that prompts and solutions fit their limits, and their tokens the model.

  Args:
    config: configuration of the run.
    demonstrations: collator of prompts and solutions.

  Raises:
    ValueError: with the first problem that does not fit.
  """

  def check_tokens(ids: Sequence[int]) -> None:
    if max(ids) >= config.model.vocab_size:
      raise ValueError(
        f"a problem has token {max(ids)}; model.vocab_size is {config.model.vocab_size}"
      )

  train, held_out = config.task.train, config.task.held_out
  for index in _checked_indices(train):
    check_tokens(demonstrations.prompts.ids(train[index]))
  for index in range(min(config.evaluation.problems, len(held_out))):
    check_tokens(demonstrations.prompts.ids(held_out[index]))  # those that are evaluated
  if not config.supervised.steps:
    return
  width = config.supervised.row_tokens
  if width and width < demonstrations.width:
    raise ValueError(
      f"supervised.row_tokens is {width}; a prompt and a solution may have "
      f"{demonstrations.width} tokens together (sampling.max_prompt_tokens and "
      "max_completion_tokens)"
    )
  for index in _checked_indices(train):
    check_tokens(demonstrations.ids(train[index]))


def _checked_indices(examples: Sequence[Example]) -> range:
  stride = len(examples) // _SAMPLE if len(examples) > _MANY else 1
  return range(0, len(examples), stride)
