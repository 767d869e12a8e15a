"""The problems of runs as arrays: everything that a host does in a step, done before."""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence

import jax
import numpy as np

from pgax.data.prompts import CollatePrompts, PromptBatch, pad
from pgax.errors import UserError
from pgax.rollout.traceable import Problems
from pgax.training.batches import batch_iterators
from pgax.training.config import RunConfig
from pgax.types import DemonstrationRows, Example, TokenReward


def read_answer(reward: TokenReward, example: Example) -> list[int]:
  """Returns what a reward needs of an example.

  Raises:
    UserError: if the reward can't score it.
  """
  try:
    return list(reward.answer_tokens(example))
  except ValueError as error:
    raise UserError(
      f"the task's token_reward can't score problem {example.prompt!r}: {error}"
    ) from None


def held_out_problems(
  examples: Sequence[Example], collate: CollatePrompts, reward: TokenReward
) -> Problems:
  """Collates problems `[N]` with their answers."""
  batch = collate(examples)
  answers = [read_answer(reward, example) for example in examples]
  width = max(1, *map(len, answers))
  return Problems(batch.tokens, batch.mask, pad(answers, width)[0])


def training_problems(
  run: RunConfig, collate: CollatePrompts, reward: TokenReward, seeds: Sequence[int]
) -> Problems:
  """Draws the problems of all steps, as the loop does for each seed.

  Args:
    run: configuration of the runs.
    collate: collates prompts.
    reward: reads answers.
    seeds: seeds of the runs.

  Returns:
    `Problems`, `[seeds, steps, N]`.
  """
  # Rows of answers have one width, which is known when all have been read.
  batches = [list(_prompt_batches(run, collate, seed)) for seed in seeds]
  answers = [
    [[read_answer(reward, x) for x in batch.examples] for batch in steps]
    for steps in batches
  ]
  lengths = [len(x) for steps in answers for rows in steps for x in rows]
  width = max(1, *lengths)
  return Problems(
    np.array([[batch.tokens for batch in steps] for steps in batches]),
    np.array([[batch.mask for batch in steps] for steps in batches]),
    np.array([[pad(rows, width)[0] for rows in steps] for steps in answers]),
  )


def _prompt_batches(
  run: RunConfig, collate: CollatePrompts, seed: int
) -> Iterator[PromptBatch]:
  seeded = dataclasses.replace(run, seed=seed)
  return itertools.islice(batch_iterators(seeded, collate)["reinforcement"], run.steps)


def solution_batches(
  run: RunConfig, collate: CollatePrompts, seeds: Sequence[int], count: int
) -> Iterator[DemonstrationRows]:
  """Draws the rows of the supervised stage, `count` steps of all seeds at a time.

  Args:
    run: configuration of the runs.
    collate: collates prompts.
    seeds: seeds of the runs.
    count: number of steps in an item; the last one may have fewer.

  Yields:
    `DemonstrationRows`, `[seeds, steps, rows, L]`.
  """
  iterators = [
    batch_iterators(dataclasses.replace(run, seed=seed), collate)["supervised"]
    for seed in seeds
  ]
  for start in range(0, run.supervised.steps, count):
    steps = min(count, run.supervised.steps - start)
    rows = [[next(iterator) for _ in range(steps)] for iterator in iterators]
    seeded = [jax.tree.map(lambda *x: np.stack(x), *steps) for steps in rows]
    yield jax.tree.map(lambda *x: np.stack(x), *seeded)
