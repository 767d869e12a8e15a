"""Completions as they are written down, token by token."""

import dataclasses

import jax
import numpy as np
from transformers import PreTrainedTokenizerFast

from pgax.data.prompts import PromptBatch
from pgax.data.tokenizer import token_text
from pgax.training.rollout import Scores
from pgax.types import Array, Rollout


@dataclasses.dataclass(frozen=True)
class Sample:
  """One completion, as a row of `samples.jsonl`.

  Attributes:
    prompt: its text.
    completion: its text.
    ground_truth: what the reward compares with.
    reward: its reward; None if it could not be scored.
    right: whether it is right; see `rollout.Scores.right`.
    finished: whether it ended by itself.
    tokens: the text of every token.
    logp: log-probability of every token under the policy, nats.
    advantages: advantage of every token; None where nothing was trained on it.
  """

  prompt: str
  completion: str
  ground_truth: str
  reward: float | None
  right: bool
  finished: bool
  tokens: list[str]
  logp: list[float]
  advantages: list[float] | None = None


def make_samples(
  tokenizer: PreTrainedTokenizerFast,
  prompts: PromptBatch,
  rollout: Rollout,
  scores: Scores,
  advantages: Array | None = None,
  limit: int = 8,
) -> list[Sample]:
  """The first completions of a rollout, group by group.

  Args:
    tokenizer: of the model.
    prompts: the batch that was sampled from.
    rollout: the completions.
    scores: theirs.
    advantages: `[N, G, T]`, or None.
    limit: how many completions.

  Returns:
    At most `limit` samples.
  """
  _, group, _ = rollout.tokens.shape
  rows = -(-max(limit, 0) // group)
  tokens, mask, logp, finished, advantages = jax.device_get(
    jax.tree.map(
      lambda x: x[:rows],
      (rollout.tokens, rollout.mask, rollout.logp, rollout.finished, advantages),
    )
  )
  samples = []
  for n, k in np.ndindex(*finished.shape):
    real, example = mask[n, k], prompts.examples[n]
    samples.append(
      Sample(
        prompt=example.prompt,
        completion=scores.texts[n][k],
        ground_truth=example.ground_truth,
        reward=float(scores.rewards[n, k]) if scores.valid[n, k] else None,
        right=bool(scores.right[n, k]),
        finished=bool(finished[n, k]),
        tokens=[token_text(tokenizer, i) for i in tokens[n, k][real]],
        logp=[round(float(x), 4) for x in logp[n, k][real]],
        advantages=None
        if advantages is None
        else [round(float(x), 4) for x in advantages[n, k][real]],
      )
    )
  return samples[: max(limit, 0)]
