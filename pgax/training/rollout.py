"""What is said of a rollout: rewards on the host, and metrics."""

import contextlib
import dataclasses
import math
import time
from collections.abc import Iterator

import jax
import numpy as np
from transformers import PreTrainedTokenizerFast

from pgax.algorithms import filters
from pgax.data.prompts import PromptBatch
from pgax.data.tokenizer import decode
from pgax.rewards.pool import REASONS, InProcess, Job, Outcome, Pool
from pgax.rewards.pool import RewardRunner as Scorer
from pgax.training.config import ScoringConfig
from pgax.training.errors import UserError
from pgax.types import PyTree, RewardFn, Rollout

# Scores are logged as `reward/NAME`, beside these.
_TAKEN = frozenset({"mean", "std", "unscorable"})


@dataclasses.dataclass(frozen=True)
class Scores:
  """What the reward function said of every completion of a rollout.

  Attributes:
    texts: `N` lists of `G` completions.
    rewards: `[N, G]` float32, 0 where not valid.
    valid: `[N, G]` bool, false where the reward was not finite: unscorable.
    parts: every other score by its name, `[N, G]` float32, nan where it was not told
      and where not valid.
    reasons: `[N, G]` of str, why a completion is not valid, one of `rewards.pool.REASONS`;
      empty where it is.
    detail: of the first that is not valid, for people; empty if all are.
  """

  texts: list[list[str]]
  rewards: np.ndarray
  valid: np.ndarray
  parts: dict[str, np.ndarray]
  reasons: np.ndarray
  detail: str = ""

  @property
  def right(self) -> np.ndarray:
    """`[N, G]` bool: the score `accuracy`, or the reward without one, is at least 1."""
    return self.valid & (self.parts.get("accuracy", self.rewards) >= 1)


def completion_texts(
  tokenizer: PreTrainedTokenizerFast, tokens: np.ndarray, mask: np.ndarray
) -> list[list[str]]:
  """Texts of completions `[N, G, T]`, special tokens left out."""
  return [
    [decode(tokenizer, ids[real]) for ids, real in zip(*group, strict=True)]
    for group in zip(tokens, mask, strict=True)
  ]


@contextlib.contextmanager
def open_scorer(reward: RewardFn, config: ScoringConfig) -> Iterator[Scorer]:
  """What applies a reward function to completions, and its processes while it is open.

  Raises:
    UserError: if worker processes can't load the function.
  """
  if not config.workers:
    yield InProcess(reward)
    return
  try:
    pool = Pool(reward, config.workers, config.deadline)
  except ValueError as error:
    raise UserError(str(error)) from error
  with pool:
    yield pool


def score(
  scorer: Scorer,
  tokenizer: PreTrainedTokenizerFast,
  prompts: PromptBatch,
  rollout: Rollout,
) -> Scores:
  """Scores every completion.

  Args:
    scorer: applies the reward function; see `open_scorer`.
    tokenizer: of the model.
    prompts: the batch that was sampled from.
    rollout: the completions.

  Returns:
    `Scores`.

  Raises:
    UserError: if the reward function leaves out `reward`, or uses a name that is taken.
  """
  tokens, mask = jax.device_get((rollout.tokens, rollout.mask))
  texts = completion_texts(tokenizer, tokens, mask)
  pairs = zip(prompts.examples, texts, strict=True)
  outcomes = scorer(
    [Job(x.prompt, t, x.ground_truth, x.metadata) for x, group in pairs for t in group]
  )
  for outcome in outcomes:
    check_names(outcome)

  def shaped(values: list, dtype: type) -> np.ndarray:
    return np.asarray(values, dtype).reshape(mask.shape[:2])

  def told(name: str) -> np.ndarray:
    return shaped([x.scores.get(name, math.nan) for x in outcomes], np.float32)

  rewards = told("reward")
  # A reward too large for float32 is found here only.
  valid = np.isfinite(rewards) & shaped([not x.reason for x in outcomes], bool)
  reasons = np.where(valid, "", shaped([x.reason or "nan" for x in outcomes], object))
  names = sorted({name for x in outcomes for name in x.scores} - {"reward"})
  return Scores(
    texts=texts,
    rewards=np.where(valid, rewards, np.float32(0)),
    valid=valid,
    parts={name: np.where(valid, told(name), np.float32(np.nan)) for name in names},
    reasons=reasons,
    detail=next((f"{x.reason}: {x.detail}" for x in outcomes if x.reason), ""),
  )


def check_names(outcome: Outcome) -> None:
  """Refuses scores without a reward, or of a name that is taken.

  Raises:
    UserError: it says which.
  """
  scores = outcome.scores
  if "reward" not in scores and not outcome.reason:
    raise UserError(
      f"the reward function returned the scores {sorted(scores)}; 'reward' must be among "
      "them"
    )
  if taken := _TAKEN & scores.keys():
    raise UserError(
      f"the reward function returned a score named {min(taken)!r}; the names "
      f"{', '.join(sorted(_TAKEN))} are those of statistics of the reward"
    )


def check_scored(scores: Scores, max_unscorable: float) -> None:
  """Stops a run in which too many completions could not be scored.

  Args:
    scores: of all completions of a step.
    max_unscorable: fraction of them.

  Raises:
    UserError: with how many there are for each reason, and what the first one says.
  """
  unscorable = 1 - scores.valid.mean()
  if unscorable > max_unscorable:
    counts = ", ".join(f"{reason} {n}" for reason, n in _counts(scores).items() if n)
    raise UserError(
      f"{unscorable:.1%} of the step's {scores.valid.size} completions could not be scored "
      f"({counts}); scoring.max_unscorable allows {max_unscorable:.1%}. The first one: "
      f"{scores.detail}"
    )


def _counts(scores: Scores) -> dict[str, int]:
  return {reason: int(np.sum(scores.reasons == reason)) for reason in REASONS}


def finite_mean(values: np.ndarray) -> float:
  """Mean of what is finite; nan if nothing is."""
  finite = values[np.isfinite(values)]
  return float(finite.mean()) if finite.size else math.nan


def rollout_metrics(rollout: Rollout, scores: Scores) -> dict[str, float]:
  """What is worth knowing of a scored rollout, under the names it is logged by.

  Args:
    rollout: the completions.
    scores: of the same completions.

  Returns:
    Scalars; `unscorable/REASON` is a number of completions. Statistics of rewards are over
    completions that could be scored, nan if there are none; a group without two different
    rewards counts as one of zero variance.
  """
  mask, finished = jax.device_get((rollout.mask, rollout.finished))
  rewards, valid = scores.rewards, scores.valid
  scored = rewards[valid] if valid.any() else np.full(1, np.nan, np.float32)
  metrics = {
    "reward/mean": scored.mean(),
    "reward/std": scored.std(),
    "reward/unscorable": 1.0 - valid.mean(),
    "groups/zero_variance": 1.0 - filters.informative(rewards, valid).mean(),
    "length/mean": mask.sum(-1).mean(),
    "length/truncated": 1.0 - finished.mean(),
  }
  metrics = {name: float(value) for name, value in metrics.items()}
  metrics["tokens/generated"] = int(mask.sum())
  metrics["completions/generated"] = rewards.size
  metrics |= {f"unscorable/{reason}": n for reason, n in _counts(scores).items()}
  return metrics | {f"reward/{name}": finite_mean(x) for name, x in scores.parts.items()}


class Stopwatch:
  """Seconds since it was made or last read; reading waits for the arrays given."""

  def __init__(self):
    self._start = time.perf_counter()

  def lap(self, *arrays: PyTree) -> float:
    """Seconds since the last lap, once the arrays are computed."""
    jax.block_until_ready(arrays)
    start, self._start = self._start, time.perf_counter()
    return self._start - start
