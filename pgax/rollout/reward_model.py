"""A learned reward model: scores of whole batches, on the devices."""

import dataclasses
import functools
from collections.abc import Collection
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from transformers import PreTrainedTokenizerFast

from pgax.data.tokenizer import load_tokenizer
from pgax.distributed.microbatches import join, split
from pgax.distributed.partitioning import param_shardings, training_layout
from pgax.distributed.placement import fetch_rows
from pgax.errors import UserError
from pgax.models import ScalarDecoder, hf, sequence_scores
from pgax.rollout.config import RewardModelConfig
from pgax.rollout.scoring import RewardResults
from pgax.types import Array, PyTree, Rollout

# Log names of the two terms of the reward.
_MODEL, _FUNCTION = "model", "function"
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")


@functools.partial(jax.jit, static_argnames=("model", "microbatches"))
def model_rewards(
  model: ScalarDecoder,
  params: PyTree,
  rollout: Rollout,
  truncation_reward: float,
  microbatches: int = 1,
) -> Array:
  """Scores completions at their last token; truncated ones get a fixed reward.

  Args:
    model: module of the reward model.
    params: its parameters.
    rollout: the completions.
    truncation_reward: reward of truncated completions, which the model was not trained on.
    microbatches: number of microbatches that prompts are scored in, to save memory.

  Returns:
    `[N, G]` float32.
  """

  def scores_of(part: Rollout) -> Array:
    prompts = part.prompt_tokens, part.prompt_mask
    return sequence_scores(model, params, *prompts, part.tokens, part.token_mask)

  scores = join(jax.lax.map(scores_of, split(rollout, microbatches)))
  return jnp.where(rollout.finished, scores, truncation_reward)


def check_score_names(names: Collection[str]) -> None:
  """Rejects score names that are reserved for the two terms of the reward.

  Raises:
    UserError: with the name.
  """
  if reserved := {_MODEL, _FUNCTION} & set(names):
    raise UserError(
      f"the reward function returned a score named {min(reserved)!r}; with a reward model "
      f"the names {_FUNCTION!r} and {_MODEL!r} are reserved"
    )


def combined(
  config: RewardModelConfig,
  results: RewardResults,
  model_scores: np.ndarray,
  finished: np.ndarray,
) -> RewardResults:
  """Adds the scores of the reward function and of the reward model.

  `reward = function_weight * function + weight * model`. A term without weight is only
  logged, and does not make a completion unscorable.

  Args:
    config: the weights.
    results: results of the reward function.
    model_scores: `[N, G]` from `model_rewards`.
    finished: `[N, G]` bool, completions that the model scored.

  Returns:
    `RewardResults` with the scores `function` and, for finished completions, `model`.

  Raises:
    UserError: if the reward function returns a score of one of these names.
  """
  check_score_names(results.scores)
  nan = np.float32(np.nan)
  function = np.where(results.valid, results.rewards, nan)
  rewards = np.zeros_like(results.rewards)
  terms = ((config.function_weight, function), (config.weight, model_scores))
  for weight, term in terms:
    rewards += np.float32(weight) * term if weight else np.float32(0)
  valid = np.isfinite(rewards)
  reasons = results.reasons
  if not config.function_weight:
    reasons = np.full_like(reasons, "")
  model_failed = ~valid & (reasons == "")
  detail = results.detail if np.any(reasons != "") else ""
  if not detail and model_failed.any():
    detail = f"nan: the reward model's score is {model_scores[model_failed][0]}"
  scores = results.scores | {
    _FUNCTION: function,
    _MODEL: np.where(finished, model_scores, nan),
  }
  return RewardResults(
    texts=results.texts,
    rewards=np.where(valid, rewards, np.float32(0)),
    valid=valid,
    scores={name: np.where(valid, values, nan) for name, values in scores.items()},
    reasons=np.where(model_failed, "nan", reasons),
    detail=detail,
  )


@dataclasses.dataclass(frozen=True, eq=False)
class RewardModel:
  """A loaded reward model.

  Attributes:
    config: weights, and the reward of truncated completions.
    model: module of the reward model.
    params: its parameters.
    microbatches: see `model_rewards`.
  """

  config: RewardModelConfig
  model: ScalarDecoder
  params: PyTree
  microbatches: int = 1

  def __call__(self, rollout: Rollout) -> Array:
    """Starts computing `model_rewards`."""
    truncation_reward = np.float32(self.config.truncation_reward)
    scores = model_rewards(
      self.model, self.params, rollout, truncation_reward, microbatches=self.microbatches
    )
    # The compiler may choose another layout than that of the rows.
    finished = rollout.finished
    return jax.device_put(
      scores, finished.sharding if isinstance(finished, jax.Array) else None
    )

  def combined(
    self, results: RewardResults, model_scores: Array, rollout: Rollout, rows: np.ndarray
  ) -> RewardResults:
    """Adds the model's scores of some rows to a reward function's; see `combined`."""
    scores, finished = fetch_rows((model_scores, rollout.finished), rows)
    return combined(self.config, results, scores, finished)


def load_reward_model(
  config: RewardModelConfig, mesh: Mesh, dtype: str, microbatches: int = 1
) -> RewardModel | None:
  """Loads a reward model.

  Args:
    config: settings of the reward model.
    mesh: mesh of devices.
    dtype: dtype of activations.
    microbatches: see `model_rewards`.

  Returns:
    A `RewardModel`; None if the settings have no path.

  Raises:
    ValueError: if the directory does not hold a sequence classifier with one label; the
      message says what is wrong.
  """
  if not config.path:
    return None
  model, path = _module(config, dtype), Path(config.path)
  params = hf.load_reward_model(path, model.config, param_shardings(model, mesh))
  model = dataclasses.replace(model, layout=training_layout(mesh))
  return RewardModel(config, model, params, microbatches)


def check_reward_model(
  config: RewardModelConfig,
  mesh: Mesh,
  dtype: str,
  tokenizer: PreTrainedTokenizerFast,
  vocab_size: int,
) -> None:
  """Checks that a reward model can be loaded, and reads the policy's tokens.

  Args:
    config: settings of the reward model.
    mesh: mesh of devices.
    dtype: dtype of activations.
    tokenizer: tokenizer of the policy.
    vocab_size: number of token ids of the policy.

  Raises:
    ValueError: with the directory and what is wrong with it.
  """
  if not config.path:
    return
  model, path = _module(config, dtype), Path(config.path)
  hf.check_reward_model(path, model.config)
  param_shardings(model, mesh)
  if model.config.vocab_size < vocab_size:
    raise ValueError(
      f"reward_model.path is {str(path)!r}, a model of {model.config.vocab_size} tokens; "
      f"the policy has {vocab_size}, and the reward model must have all of them"
    )
  # Without a tokenizer its token ids are taken to be the policy's.
  has_tokenizer = any((path / name).is_file() for name in _TOKENIZER_FILES)
  if has_tokenizer and load_tokenizer(path).get_vocab() != tokenizer.get_vocab():
    raise ValueError(
      f"reward_model.path is {str(path)!r}, whose tokenizer differs from the policy's; the "
      "reward model reads the policy's tokens, so both must be the same"
    )


def _module(config: RewardModelConfig, dtype: str) -> ScalarDecoder:
  decoder = hf.load_reward_model_config(Path(config.path))
  return ScalarDecoder(dataclasses.replace(decoder, dtype=dtype))
