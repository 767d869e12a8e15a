"""Scoring rollouts on the host with a reward function."""

import contextlib
import dataclasses
import math
from collections.abc import Iterator, Sequence

import jax
import numpy as np
from transformers import PreTrainedTokenizerFast

from pgax.data.prompts import PromptBatch
from pgax.data.tokenizer import decode
from pgax.distributed.hosts import gather
from pgax.distributed.placement import fetch_rows
from pgax.errors import UserError
from pgax.rewards.pool import REASONS, InProcess, Job, Outcome, Pool, RewardRunner
from pgax.rollout.config import ScoringConfig
from pgax.types import RewardFn, Rollout

# Named scores are logged as `reward/NAME`, beside these statistics.
_RESERVED = frozenset({"mean", "std", "unscorable"})


@dataclasses.dataclass(frozen=True)
class RewardResults:
  """Results of a reward function for every completion of a rollout.

  Attributes:
    texts: `N` lists of `G` completions; those of rows that another process scored are
      empty.
    rewards: `[N, G]` float32, 0 where not valid.
    valid: `[N, G]` bool, false where the completion could not be scored.
    scores: `[N, G]` float32 of every other score, by name; nan where not valid, and where
      the function did not return it.
    reasons: `[N, G]` str, why a completion is not valid: one of `rewards.pool.REASONS`;
      empty where it is valid.
    detail: explanation of the first failure; empty if there is none.
  """

  texts: list[list[str]]
  rewards: np.ndarray
  valid: np.ndarray
  scores: dict[str, np.ndarray]
  reasons: np.ndarray
  detail: str = ""

  @property
  def right(self) -> np.ndarray:
    """`[N, G]` bool, whether the `accuracy` score, or else the reward, is at least 1."""
    return self.valid & (self.scores.get("accuracy", self.rewards) >= 1)

  def take(self, rows: np.ndarray) -> "RewardResults":
    """Returns the results of some prompts, by index."""
    return RewardResults(
      texts=[self.texts[row] for row in rows],
      rewards=self.rewards[rows],
      valid=self.valid[rows],
      scores={name: values[rows] for name, values in self.scores.items()},
      reasons=self.reasons[rows],
      detail=self.detail,
    )

  @staticmethod
  def concatenate(results: Sequence["RewardResults"]) -> "RewardResults":
    """Joins results of several batches; scores that a batch lacks are nan there."""
    names = sorted({name for x in results for name in x.scores})

    def scores_of(name: str) -> list[np.ndarray]:
      missing = [np.full(x.rewards.shape, np.nan, np.float32) for x in results]
      return [x.scores.get(name, nan) for x, nan in zip(results, missing, strict=True)]

    return RewardResults(
      texts=[group for x in results for group in x.texts],
      rewards=np.concatenate([x.rewards for x in results]),
      valid=np.concatenate([x.valid for x in results]),
      scores={name: np.concatenate(scores_of(name)) for name in names},
      reasons=np.concatenate([x.reasons for x in results]),
      detail=next((x.detail for x in results if x.detail), ""),
    )


def completion_texts(
  tokenizer: PreTrainedTokenizerFast, tokens: np.ndarray, mask: np.ndarray
) -> list[list[str]]:
  """Decodes completions, leaving out special tokens.

  Args:
    tokenizer: tokenizer of the model.
    tokens: `[N, G, T]` token ids.
    mask: `[N, G, T]` bool, tokens to decode.

  Returns:
    `N` lists of `G` texts.
  """
  return [
    [decode(tokenizer, ids[real]) for ids, real in zip(*group, strict=True)]
    for group in zip(tokens, mask, strict=True)
  ]


@contextlib.contextmanager
def open_reward_runner(reward: RewardFn, config: ScoringConfig) -> Iterator[RewardRunner]:
  """Opens a runner of a reward function, with its worker processes if there are any.

  Args:
    reward: reward function.
    config: number of workers, and their time and memory limits.

  Yields:
    A `RewardRunner`.

  Raises:
    UserError: if worker processes can't load the function.
  """
  if not config.workers:
    yield InProcess(reward)
    return
  try:
    pool = Pool(reward, config.workers, config.timeout_seconds, config.worker_memory)
  except ValueError as error:
    raise UserError(str(error)) from error
  with pool:
    yield pool


def score_rollout(
  runner: RewardRunner,
  tokenizer: PreTrainedTokenizerFast,
  prompts: PromptBatch,
  rollout: Rollout,
  rows: np.ndarray | None = None,
) -> RewardResults:
  """Scores the completions of a rollout, or some rows of them.

  Args:
    runner: runs the reward function; see `open_reward_runner`.
    tokenizer: tokenizer of the model.
    prompts: prompts of the rollout.
    rollout: the completions.
    rows: indices of the prompts whose completions this process scores, in increasing
      order; None for all.

  Returns:
    `RewardResults` of these rows.

  Raises:
    UserError: if the reward function returns no `reward`, or a reserved name.
  """
  rows = np.arange(len(prompts.examples)) if rows is None else rows
  tokens, mask = fetch_rows((rollout.tokens, rollout.token_mask), rows)
  texts = completion_texts(tokenizer, tokens, mask)
  groups = zip([prompts.examples[row] for row in rows], texts, strict=True)
  outcomes = runner(
    [Job(x.prompt, t, x.ground_truth, x.metadata) for x, group in groups for t in group]
  )
  for outcome in outcomes:
    check_outcome(outcome)

  def in_groups(values: list, dtype: type) -> np.ndarray:
    return np.asarray(values, dtype).reshape(mask.shape[:2])

  def scores_of(name: str) -> np.ndarray:
    return in_groups([x.scores.get(name, math.nan) for x in outcomes], np.float32)

  rewards = scores_of("reward")
  # A finite reward that is too large for float32 is infinite here.
  valid = np.isfinite(rewards) & in_groups([not x.reason for x in outcomes], bool)
  reasons = in_groups([x.reason or "nan" for x in outcomes], object)
  names = sorted({name for x in outcomes for name in x.scores} - {"reward"})
  return RewardResults(
    texts=texts,
    rewards=np.where(valid, rewards, np.float32(0)),
    valid=valid,
    scores={name: np.where(valid, scores_of(name), np.float32(np.nan)) for name in names},
    reasons=np.where(valid, "", reasons),
    detail=next((f"{x.reason}: {x.detail}" for x in outcomes if x.reason), ""),
  )


def gather_results(results: RewardResults, rows: np.ndarray, count: int) -> RewardResults:
  """Joins the results of all processes, each of which scored some rows.

  Args:
    results: results of this process, from `score_rollout`.
    rows: indices of its prompts.
    count: number of all prompts, `N`.

  Returns:
    Results of all rows, the same in every process except for their texts.
  """
  if jax.process_count() == 1:
    return results
  texts: list[list[str]] = [[] for _ in range(count)]
  for row, group in zip(rows, results.texts, strict=True):
    texts[row] = group
  sent = dataclasses.replace(results, texts=[[] for _ in rows])
  indices, parts = zip(*gather((rows, sent)), strict=True)
  joined = RewardResults.concatenate(parts).take(np.argsort(np.concatenate(indices)))
  return dataclasses.replace(joined, texts=texts)


def check_outcome(outcome: Outcome) -> None:
  """Rejects an outcome whose scores lack `reward` or use a reserved name.

  Args:
    outcome: outcome of one completion.

  Raises:
    UserError: with the names.
  """
  scores = outcome.scores
  if "reward" not in scores and not outcome.reason:
    raise UserError(
      f"the reward function returned the scores {sorted(scores)}; 'reward' must be among "
      "them"
    )
  if reserved := _RESERVED & scores.keys():
    raise UserError(
      f"the reward function returned a score named {min(reserved)!r}; the names "
      f"{', '.join(sorted(_RESERVED))} are reserved for statistics of the reward"
    )


def score_components(results: RewardResults, names: Sequence[str]) -> np.ndarray:
  """Stacks named scores, for algorithms that read them one by one.

  Args:
    results: results of the reward function.
    names: names of the scores; `reward` is the reward.

  Returns:
    `[N, G, K]` float32, nan where a completion has no such score.

  Raises:
    UserError: if no completion has a score of one of the names.
  """
  scores = results.scores | {"reward": results.rewards}
  for name in names:
    if name not in scores and results.valid.any():
      raise UserError(
        f"components has {name!r}, which the reward function did not return; its scores "
        f"are {', '.join(sorted(scores))}"
      )
  missing = np.full(results.rewards.shape, np.nan, np.float32)
  return np.stack([scores.get(name, missing) for name in names], axis=-1)


def check_scored(results: RewardResults, max_unscorable: float) -> None:
  """Stops a run if too many completions could not be scored.

  Args:
    results: results of all completions of a step.
    max_unscorable: largest fraction of completions that may have failed.

  Raises:
    UserError: with the number of failures for each reason, and details of the first one.
  """
  unscorable = 1 - results.valid.mean()
  if unscorable > max_unscorable:
    counts = ", ".join(f"{reason} {n}" for reason, n in failures(results).items() if n)
    raise UserError(
      f"{unscorable:.1%} of the step's {results.valid.size} completions could not be "
      f"scored ({counts}); scoring.max_unscorable allows {max_unscorable:.1%}. The first "
      f"failure: {results.detail}"
    )


def failures(results: RewardResults) -> dict[str, int]:
  """Counts completions that could not be scored, by reason."""
  return {reason: int(np.sum(results.reasons == reason)) for reason in REASONS}
