"""A learned reward model in the loop: scores of whole batches, on the devices."""

import dataclasses
import functools
import math
from collections.abc import Collection
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from transformers import PreTrainedTokenizerFast

from pgax.data.tokenizer import load_tokenizer
from pgax.models import Critic, hf, sequence_scores
from pgax.models.partitioning import param_shardings
from pgax.training.config import RunConfig
from pgax.training.errors import UserError
from pgax.training.forward import join, split
from pgax.training.reward_config import RewardModelConfig
from pgax.training.rollout import Scores
from pgax.types import Array, PyTree, Rollout

# Names of the parts of a reward that a model has a say in.
_MODEL, _FUNCTION = "model", "function"
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")


@functools.partial(jax.jit, static_argnames=("scorer", "microbatches"))
def model_rewards(
  scorer: Critic,
  params: PyTree,
  rollout: Rollout,
  cut_reward: float,
  microbatches: int = 1,
) -> Array:
  """Scores of the completions that have ended; of a model that has seen no others.

  Args:
    scorer: the reward model.
    params: its parameters.
    rollout: the completions.
    cut_reward: of a completion that was cut at the limit, in the place of a score.
    microbatches: parts that prompts are scored in, to save memory.

  Returns:
    `[N, G]` float32, at the last token of each completion, its EOS say.
  """

  def told(part: Rollout) -> Array:
    prompts = part.prompt_tokens, part.prompt_mask
    return sequence_scores(scorer, params, *prompts, part.tokens, part.mask)

  scores = join(jax.lax.map(told, split(rollout, microbatches)))
  return jnp.where(rollout.finished, scores, cut_reward)


def check_parts(names: Collection[str]) -> None:
  """Refuses scores of a reward function that have the names of the two.

  Raises:
    UserError: it says which.
  """
  if taken := {_MODEL, _FUNCTION} & set(names):
    raise UserError(
      f"the reward function returned a score named {min(taken)!r}; beside a reward model "
      f"{_FUNCTION!r} and {_MODEL!r} are the names of the two"
    )


def combined(
  config: RewardModelConfig, scores: Scores, told: np.ndarray, finished: np.ndarray
) -> Scores:
  """Weighs the reward function's scores and the model's.

  `reward = function_weight * function + weight * model`; what has no weight is only looked
  at, and does not make a completion unscorable.

  Args:
    config: the weights.
    scores: of the reward function.
    told: `[N, G]`, from `model_rewards`.
    finished: `[N, G]` bool, which completions the model has scored.

  Returns:
    `Scores` with the parts `function` and, of completions that have ended, `model`.

  Raises:
    UserError: if the reward function has a part of such a name.
  """
  check_parts(scores.parts)
  nan = np.float32(np.nan)
  function = np.where(scores.valid, scores.rewards, nan)
  rewards = np.zeros_like(scores.rewards)
  for weight, part in ((config.function_weight, function), (config.weight, told)):
    rewards += np.float32(weight) * part if weight else np.float32(0)
  valid = np.isfinite(rewards)
  reasons = scores.reasons if config.function_weight else np.full_like(scores.reasons, "")
  unsaid = ~valid & (reasons == "")  # what the function could score
  parts = scores.parts | {_FUNCTION: function, _MODEL: np.where(finished, told, nan)}
  detail = scores.detail if np.any(reasons != "") else ""
  if not detail and unsaid.any():
    detail = f"nan: the reward model's score is {told[unsaid][0]}"
  return Scores(
    texts=scores.texts,
    rewards=np.where(valid, rewards, np.float32(0)),
    valid=valid,
    parts={name: np.where(valid, values, nan) for name, values in parts.items()},
    reasons=np.where(unsaid, "nan", reasons),
    detail=detail,
  )


@dataclasses.dataclass(frozen=True, eq=False)
class RewardModel:
  """A reward model, ready to score.

  Attributes:
    config: its weight, and the reward of what it does not see.
    scorer: the module.
    params: its parameters.
    microbatches: see `model_rewards`.
  """

  config: RewardModelConfig
  scorer: Critic
  params: PyTree
  microbatches: int = 1

  def __call__(self, rollout: Rollout) -> Array:
    """`model_rewards`, still being computed."""
    cut_reward = np.float32(self.config.cut_reward)
    return model_rewards(
      self.scorer, self.params, rollout, cut_reward, microbatches=self.microbatches
    )

  def combined(self, scores: Scores, told: Array, rollout: Rollout) -> Scores:
    """The reward function's scores with the model's; see `combined`."""
    return combined(self.config, scores, *jax.device_get((told, rollout.finished)))


def _scorer(config: RunConfig) -> Critic:
  decoder = hf.load_scorer_config(Path(config.reward_model.path))
  return Critic(dataclasses.replace(decoder, dtype=config.model.dtype))


def load_reward_model(config: RunConfig, mesh: Mesh) -> RewardModel | None:
  """The reward model of a run; None if it has none.

  Args:
    config: of the run.
    mesh: of the devices; parameters lie on it as those of a critic.

  Returns:
    A `RewardModel`.

  Raises:
    ValueError: if the directory is not that of a sequence scorer; it names what is wrong.
  """
  if not config.reward_model.path:
    return None
  scorer, path = _scorer(config), Path(config.reward_model.path)
  params = hf.load_scorer(path, scorer.config, param_shardings(scorer, mesh))
  # No more prompts at a time than in a step that is not scored in parts.
  prompts = config.sampling.prompts // config.scoring.parts
  microbatches = math.gcd(config.microbatches, prompts)
  return RewardModel(config.reward_model, scorer, params, microbatches)


def check_reward_model(
  config: RunConfig, tokenizer: PreTrainedTokenizerFast, mesh: Mesh
) -> None:
  """Makes sure that a run's reward model can be loaded, and reads the same tokens.

  Args:
    config: of the run.
    tokenizer: of the policy.
    mesh: of the devices.

  Raises:
    ValueError: naming the directory, and what is wrong with it.
  """
  if not config.reward_model.path:
    return
  scorer, path = _scorer(config), Path(config.reward_model.path)
  hf.check_scorer(path, scorer.config)
  param_shardings(scorer, mesh)
  if scorer.config.vocab_size < config.model.vocab_size:
    raise ValueError(
      f"reward_model.path is {str(path)!r}, of {scorer.config.vocab_size} tokens; the "
      f"policy has {config.model.vocab_size}, and the model must know them all"
    )
  # Where it has no tokenizer its ids are taken for the policy's.
  has_tokenizer = any((path / name).is_file() for name in _TOKENIZER_FILES)
  if has_tokenizer and load_tokenizer(path).get_vocab() != tokenizer.get_vocab():
    raise ValueError(
      f"reward_model.path is {str(path)!r}, whose tokenizer has other tokens than the "
      "policy's; the model reads the policy's tokens, so they must be the same"
    )
