"""Completions as rows of `samples.jsonl`, token by token."""

import dataclasses

import numpy as np
from transformers import PreTrainedTokenizerFast

from pgax.data.prompts import PromptBatch
from pgax.data.tokenizer import token_text, tokens_text
from pgax.distributed.placement import fetch_first
from pgax.rollout.scoring import RewardResults, completion_texts
from pgax.types import Array, Rollout


@dataclasses.dataclass(frozen=True)
class Sample:
  """One completion, as a row of `samples.jsonl`.

  Attributes:
    prompt: text of the problem's prompt.
    completion: text of the completion.
    ground_truth: the text that the reward function compares with.
    reward: reward; None if the completion could not be scored.
    right: whether the completion is right; see `RewardResults.right`.
    finished: whether the completion ended before the length limit.
    tokens: text of every token.
    logp: log-probability of every token under the policy, in nats; None where it is not
      finite.
    advantages: advantage of every token, None where it is not finite; None if the
      completion was not trained on.
    rendered_prompt: text of every token that the policy read before the completion, such as
      a chat with the markers of its turns.
    ids: id of every token.
    prompt_ids: ids of the tokens that the policy read before the completion.
    sample_logp: log-probability of every token under the distribution that was sampled
      from, in nats.
  """

  prompt: str
  completion: str
  ground_truth: str
  reward: float | None
  right: bool
  finished: bool
  tokens: list[str]
  logp: list[float | None]
  advantages: list[float | None] | None = None
  rendered_prompt: str = ""
  ids: list[int] = dataclasses.field(default_factory=list)
  prompt_ids: list[int] = dataclasses.field(default_factory=list)
  sample_logp: list[float | None] = dataclasses.field(default_factory=list)


def make_samples(
  tokenizer: PreTrainedTokenizerFast,
  prompts: PromptBatch,
  rollout: Rollout,
  results: RewardResults,
  advantages: Array | None = None,
  limit: int = 8,
) -> list[Sample]:
  """Makes rows of the first completions of a rollout, group by group.

  Args:
    tokenizer: tokenizer of the model.
    prompts: prompts of the rollout.
    rollout: the completions.
    results: results of the reward function.
    advantages: `[N, G, T]`, or None.
    limit: maximum number of rows.

  Returns:
    At most `limit` samples.
  """
  _, group, _ = rollout.tokens.shape
  rows = -(-max(limit, 0) // group)
  (tokens, mask, logp, sample_logp, finished), advantages = fetch_first(
    (
      (
        *(rollout.tokens, rollout.token_mask),
        *(rollout.logp, rollout.sample_logp, rollout.finished),
      ),
      advantages,
    ),
    min(rows, len(prompts.examples)),
  )
  # The texts of the results are those of this process alone.
  texts = completion_texts(tokenizer, tokens, mask)
  samples = []
  for n, k in np.ndindex(*finished.shape):
    real, example = mask[n, k], prompts.examples[n]
    read = prompts.tokens[n][prompts.mask[n]]
    samples.append(
      Sample(
        prompt=example.prompt,
        completion=texts[n][k],
        ground_truth=example.ground_truth,
        reward=float(results.rewards[n, k]) if results.valid[n, k] else None,
        right=bool(results.right[n, k]),
        finished=bool(finished[n, k]),
        tokens=[token_text(tokenizer, i) for i in tokens[n, k][real]],
        logp=_rounded(logp[n, k][real]),
        advantages=None if advantages is None else _rounded(advantages[n, k][real]),
        rendered_prompt=tokens_text(tokenizer, read),
        ids=tokens[n, k][real].tolist(),
        prompt_ids=read.tolist(),
        sample_logp=_rounded(sample_logp[n, k][real]),
      )
    )
  return samples[: max(limit, 0)]


def _rounded(values: np.ndarray) -> list[float | None]:
  return [round(float(x), 7) if np.isfinite(x) else None for x in values]
