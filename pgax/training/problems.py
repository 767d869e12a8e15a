"""The problems of a run as its model can take them."""

import dataclasses

import grain
from transformers import PreTrainedTokenizerFast

from pgax.data.chat import Chat
from pgax.data.demonstrations import CollateDemonstrations, packed_batches
from pgax.data.limits import within_limit
from pgax.data.pipeline import batches
from pgax.data.prompts import CollatePrompts
from pgax.training.config import RunConfig
from pgax.training.errors import UserError


def prompt_collator(
  config: RunConfig, tokenizer: PreTrainedTokenizerFast
) -> CollatePrompts:
  """How a run makes batches of prompts.

  Raises:
    UserError: if prompts are to be rendered as a chat and the tokenizer can't do it.
  """
  chat = Chat(config.data.system_prompt) if config.data.chat_template else None
  if chat:
    try:
      chat.check(tokenizer)
    except ValueError as error:
      raise UserError(str(error)) from None
  return CollatePrompts(tokenizer, config.sampling.max_prompt_tokens, chat)


def demonstration_batches(
  config: RunConfig, prompts: CollatePrompts
) -> grain.DatasetIterator:
  """Batches of worked solutions, one in a row or packed, as a run is configured.

  Args:
    config: the run.
    prompts: how it makes batches of prompts.

  Returns:
    An iterator of `DemonstrationRows` in the order of the run's seed.
  """
  collate = CollateDemonstrations(prompts, config.sampling.max_tokens)
  stage, train, seed = config.supervised, config.task.train, 2 * config.seed
  if stage.row_tokens:
    return packed_batches(train, collate, stage.batch_size, stage.row_tokens, seed)
  return batches(train, collate, stage.batch_size, seed)


def fit_problems(
  config: RunConfig, tokenizer: PreTrainedTokenizerFast
) -> tuple[RunConfig, dict[str, int]]:
  """A run without the problems that it leaves out, and what is known of its data.

  Args:
    config: the run.
    tokenizer: of the model.

  Returns:
    The run, and counts by the names that they are logged by: `data/train` and
    `data/held_out`, problems; `data/bad_rows`, rows of files that were skipped;
    `data/filtered`, problems that a filter left out; `data/dropped_prompts`, those that
    were over the limit.

  Raises:
    UserError: if no problem is left.
  """
  collate, dropped = prompt_collator(config, tokenizer), 0
  if config.data.overlong_prompts == "drop":
    try:
      task, dropped = within_limit(config.task, collate)
    except ValueError as error:
      raise UserError(str(error)) from None
    config = dataclasses.replace(config, task=task)
  counts = {
    "data/train": len(config.task.train),
    "data/held_out": len(config.task.held_out),
    "data/bad_rows": len(config.task.bad_rows),
    "data/filtered": config.task.filtered,
    "data/dropped_prompts": dropped,
  }
  return config, counts
