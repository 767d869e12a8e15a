"""Rewards of steps: from places in a text to tokens."""

from bisect import bisect_left

import numpy as np
from transformers import PreTrainedTokenizerFast

from pgax.data.prompts import PromptBatch
from pgax.data.tokenizer import decode
from pgax.training.errors import UserError
from pgax.types import StepRewardFn


def step_rewards(
  reward: StepRewardFn,
  tokenizer: PreTrainedTokenizerFast,
  prompts: PromptBatch,
  texts: list[list[str]],
  tokens: np.ndarray,
  mask: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
  """Rewards the steps of every completion.

  A step ends at the token that holds its last character; one that ends the text ends with
  the completion, EOS included. Of two steps that end at one token the rewards add up.

  Args:
    reward: the step reward function.
    tokenizer: of the model.
    prompts: the batch that was sampled from.
    texts: `N` lists of `G` completions.
    tokens: `[N, G, T]` their tokens.
    mask: `[N, G, T]` bool.

  Returns:
    `[N, G, T]` float32 rewards at the tokens that end a step, and `[N, G, T]` bool where
    those are.

  Raises:
    UserError: if a step ends outside of its completion, or its reward is not finite.
  """
  rewards, ends = np.zeros(mask.shape, np.float32), np.zeros(mask.shape, bool)
  for n, k in np.ndindex(*mask.shape[:2]):
    example, text = prompts.examples[n], texts[n][k]
    ids = tokens[n, k][mask[n, k]]
    found = reward(example.prompt, text, example.ground_truth, example.metadata)
    for end, value in found:
      if not 0 < end <= len(text) or not np.isfinite(value):
        raise UserError(
          f"the step reward function {reward!r} returned a step that ends at {end} with "
          f"reward {value} in a completion of {len(text)} characters; a step ends at a "
          "character from 1 on, and its reward is finite"
        )
      token = len(ids) - 1 if end == len(text) else _token_at(tokenizer, ids, text[:end])
      rewards[n, k, token] += value
      ends[n, k, token] = True
  return rewards, ends


def _token_at(tokenizer: PreTrainedTokenizerFast, ids: np.ndarray, text: str) -> int:
  """Index of the first token with which the completion begins with `text`."""

  def begins(token: int) -> bool:
    # Before the last byte of a character there stands another one in its place.
    return decode(tokenizer, ids[: token + 1])[: len(text)] == text

  return bisect_left(range(len(ids) - 1), True, key=begins)
