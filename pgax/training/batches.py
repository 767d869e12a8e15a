"""The problems of a run as batches that its model can take."""

import dataclasses
import math
from collections.abc import Callable, Sequence

import jax
import numpy as np
from jax.sharding import Mesh
from transformers import PreTrainedTokenizerFast

from pgax.data.chat import Chat
from pgax.data.config import DataConfig
from pgax.data.demonstrations import CollateDemonstrations, packed_batches
from pgax.data.limits import within_limit
from pgax.data.pipeline import batches
from pgax.data.prompts import CollatePrompts
from pgax.distributed.partitioning import batch_shards
from pgax.errors import UserError
from pgax.rollout.source import CheckedIterator
from pgax.training.config import RunConfig
from pgax.types import Example, PyTree


def prompt_collator(
  data: DataConfig, tokenizer: PreTrainedTokenizerFast, max_prompt_tokens: int
) -> CollatePrompts:
  """Builds the collator of prompts.

  Args:
    data: how problems become prompts.
    tokenizer: tokenizer of the model.
    max_prompt_tokens: maximum number of tokens in a prompt.

  Returns:
    A `CollatePrompts`.

  Raises:
    UserError: if the tokenizer can't render the chat that the settings ask for.
  """
  chat = Chat(data.system_prompt) if data.chat_template else None
  if chat:
    try:
      chat.check(tokenizer)
    except ValueError as error:
      raise UserError(str(error)) from None
  return CollatePrompts(tokenizer, max_prompt_tokens, chat)


def prompts_multiple(config: RunConfig, mesh: Mesh) -> int:
  """Returns the multiple that the number of prompts is padded to.

  Devices then have equal parts of every chunk that is sampled and of every minibatch.

  Args:
    config: configuration of the run.
    mesh: mesh of devices.
  """
  parts = math.lcm(config.scoring.pipeline_chunks, config.trained_algorithm.minibatches)
  return parts * batch_shards(mesh)


def prompts_computed(config: RunConfig, mesh: Mesh) -> int:
  """Returns the number of prompts that a step computes, padding included.

  Args:
    config: configuration of the run.
    mesh: mesh of devices.
  """
  multiple = prompts_multiple(config, mesh)
  return -(-config.sampling.prompts_per_step // multiple) * multiple


def batch_iterators(
  config: RunConfig,
  prompts: CollatePrompts,
  held: Callable[[int], np.ndarray] | None = None,
) -> dict[str, CheckedIterator]:
  """Builds the data iterators of a run, one for each stage and each with its own shuffle.

  Args:
    config: configuration of the run.
    prompts: collator of prompts.
    held: returns which rows of a batch of a size this process needs; None for all.

  Returns:
    `supervised`, which yields `DemonstrationRows`, and `reinforcement`, which yields
    `PromptBatch`es. Prompts and packed rows are always collated as a whole: every process
    needs the problems of all prompts, and rows can only be packed in order.
  """
  train, stage, seed = config.task.train, config.supervised, 2 * config.seed
  collate = CollateDemonstrations(prompts, config.sampling.max_completion_tokens)
  if stage.row_tokens:
    supervised = packed_batches(train, collate, stage.batch_size, stage.row_tokens, seed)
  else:
    rows = held(stage.batch_size) if held else ()
    some = 0 < len(rows) < stage.batch_size
    rows_of = CollateHeld(collate, rows) if some else collate
    supervised = batches(train, rows_of, stage.batch_size, seed)
  reinforcement = batches(train, prompts, config.sampling.prompts_per_step, seed + 1)
  return {
    "supervised": CheckedIterator(supervised),
    "reinforcement": CheckedIterator(reinforcement),
  }


@dataclasses.dataclass(frozen=True)
class CollateHeld:
  """Collates the rows of a batch that a process holds, and leaves the others zero.

  Attributes:
    collate: collates a list of examples into a pytree of arrays.
    rows: indices of the rows.
  """

  collate: Callable[[Sequence[Example]], PyTree]
  rows: np.ndarray

  def __call__(self, examples: Sequence[Example]) -> PyTree:
    """Collates a batch; arrays are `[len(examples), ...]`."""
    part = self.collate([examples[row] for row in self.rows])

    def spread(x: np.ndarray) -> np.ndarray:
      whole = np.zeros((len(examples), *x.shape[1:]), x.dtype)
      whole[self.rows] = x
      return whole

    return jax.tree.map(spread, part)


def fit_task(
  config: RunConfig, tokenizer: PreTrainedTokenizerFast
) -> tuple[RunConfig, dict[str, int]]:
  """Removes the problems that a run can't use, and counts both kinds.

  Args:
    config: configuration of the run.
    tokenizer: tokenizer of the model.

  Returns:
    The configuration with the remaining problems, and counts by their log names:
    `data/train` and `data/held_out`, problems; `data/bad_rows`, skipped rows of files;
    `data/filtered`, problems removed by a filter; `data/dropped_prompts`, problems over
    the length limit.

  Raises:
    UserError: if no problem is left.
  """
  collate = prompt_collator(config.data, tokenizer, config.sampling.max_prompt_tokens)
  dropped = 0
  if config.data.overlong_prompts == "drop":
    try:
      task, dropped = within_limit(config.task, collate)
    except ValueError as error:
      raise UserError(str(error)) from None
    config = dataclasses.replace(config, task=task)
  return config, {
    "data/train": len(config.task.train),
    "data/held_out": len(config.task.held_out),
    "data/bad_rows": len(config.task.bad_rows),
    "data/filtered": config.task.filtered,
    "data/dropped_prompts": dropped,
  }
