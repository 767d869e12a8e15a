"""Step rewards: from character positions in a text to tokens."""

from bisect import bisect_left

import numpy as np
from transformers import PreTrainedTokenizerFast

from pgax.data.prompts import PromptBatch
from pgax.data.tokenizer import decode
from pgax.distributed.hosts import gather, shared_errors
from pgax.distributed.placement import fetch_rows
from pgax.errors import UserError
from pgax.rollout.scoring import completion_texts
from pgax.types import Rollout, StepRewardFn


def rollout_step_rewards(
  reward: StepRewardFn,
  tokenizer: PreTrainedTokenizerFast,
  prompts: PromptBatch,
  rollout: Rollout,
  rows: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
  """Rewards the steps of all completions of a rollout; each process rewards its rows.

  Args:
    reward: step reward function.
    tokenizer: tokenizer of the model.
    prompts: prompts of the rollout.
    rollout: the completions.
    rows: indices of the prompts of this process; see `distributed.placement.owned_rows`.

  Returns:
    See `step_rewards`; the same in every process.

  Raises:
    UserError: see `step_rewards`.
  """
  with shared_errors():
    tokens, mask = fetch_rows((rollout.tokens, rollout.token_mask), rows)
    texts = completion_texts(tokenizer, tokens, mask)
    own = prompts.take(rows)
    values, ends = step_rewards(reward, tokenizer, own, texts, tokens, mask)
    n, k, t = np.nonzero(ends)
    found = rows[n], k, t, values[n, k, t]
  rewards = np.zeros(rollout.tokens.shape, np.float32)
  ends = np.zeros(rollout.tokens.shape, bool)
  for *where, values in gather(found):
    rewards[tuple(where)], ends[tuple(where)] = values, True
  return rewards, ends


def step_rewards(
  reward: StepRewardFn,
  tokenizer: PreTrainedTokenizerFast,
  prompts: PromptBatch,
  texts: list[list[str]],
  tokens: np.ndarray,
  mask: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
  """Rewards the steps of every completion.

  A step ends at the token that holds its last character; a step that ends the text ends at
  the completion's last token, EOS included. Rewards of steps that end at the same token
  are added.

  Args:
    reward: step reward function.
    tokenizer: tokenizer of the model.
    prompts: prompts of the rollout.
    texts: `N` lists of `G` completions.
    tokens: `[N, G, T]` token ids of the completions.
    mask: `[N, G, T]` bool, tokens of the completions.

  Returns:
    `[N, G, T]` float32 rewards at the tokens that end a step, and `[N, G, T]` bool that
    marks these tokens.

  Raises:
    UserError: if a step ends outside its completion, or its reward is not finite.
  """
  rewards, ends = np.zeros(mask.shape, np.float32), np.zeros(mask.shape, bool)
  for n, k in np.ndindex(*mask.shape[:2]):
    example, text = prompts.examples[n], texts[n][k]
    ids = tokens[n, k][mask[n, k]]
    steps = reward(example.prompt, text, example.ground_truth, example.metadata)
    for end, value in steps:
      if not 0 < end <= len(text) or not np.isfinite(value):
        raise UserError(
          f"the step reward function {reward!r} returned a step that ends at {end} with "
          f"reward {value}; the completion has {len(text)} characters. The end must be "
          "from 1 to that number, and the reward finite"
        )
      token = len(ids) - 1 if end == len(text) else _token_at(tokenizer, ids, text[:end])
      rewards[n, k, token] += value
      ends[n, k, token] = True
  return rewards, ends


def _token_at(tokenizer: PreTrainedTokenizerFast, ids: np.ndarray, text: str) -> int:
  """Index of the first token with which the completion begins with `text`."""

  def begins(token: int) -> bool:
    # Until the last byte of a character, the text ends in a replacement character.
    return decode(tokenizer, ids[: token + 1])[: len(text)] == text

  return bisect_left(range(len(ids) - 1), True, key=begins)
