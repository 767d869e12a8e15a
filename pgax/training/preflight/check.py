"""Runs all checks of a run, in order."""

import contextlib
import warnings

from transformers import PreTrainedTokenizerFast

from pgax.data.demonstrations import CollateDemonstrations
from pgax.distributed.mesh import make_mesh
from pgax.distributed.partitioning import undivided
from pgax.errors import UserError
from pgax.learner.state import abstract_policy
from pgax.models.decoder import Decoder
from pgax.rewards.pool import RewardRunner
from pgax.rollout.reward_model import check_reward_model
from pgax.rollout.scoring import open_reward_runner
from pgax.training.batches import prompt_collator
from pgax.training.config import RunConfig
from pgax.training.preflight.memory import check_memory
from pgax.training.preflight.problems import check_lengths
from pgax.training.preflight.rewards import check_rewards, check_timeout
from pgax.training.preflight.settings import (
  check_algorithm,
  check_attention,
  check_decays,
  check_divisibility,
  check_optimizers,
  check_reward_model_settings,
  check_vocabulary,
)
from pgax.training.preflight.stored import check_stored
from pgax.training.preflight.weights import check_weights
from pgax.training.progress import Progress


def check_run(
  config: RunConfig,
  tokenizer: PreTrainedTokenizerFast,
  done: Progress | None = None,
  runner: RewardRunner | None = None,
) -> None:
  """Rejects a run that would fail later, and warns of parameters that are not sharded.

  Args:
    config: configuration of the run.
    tokenizer: tokenizer of the model.
    done: progress of the run; None for a new run.
    runner: runs the reward function; None opens one for the checks.

  Raises:
    UserError: with the setting, its value and what is allowed.
  """
  prompts = prompt_collator(config.data, tokenizer, config.sampling.max_prompt_tokens)
  demonstrations = CollateDemonstrations(prompts, config.sampling.max_completion_tokens)
  try:
    mesh = make_mesh(config.mesh)
    check_vocabulary(config, tokenizer)
    check_attention(config)
    check_divisibility(config, mesh)
    abstract_policy(Decoder(config.model), config.lora, mesh)
    for sentence in undivided(Decoder(config.model), mesh):
      warnings.warn(sentence, stacklevel=2)
    check_algorithm(config)
    check_memory(config, mesh)
    check_lengths(config, demonstrations)
    check_stored(config)
    check_reward_model_settings(config.reward_model)
    check_decays(config)
    check_optimizers(config)
    check_timeout(config.reward, config.scoring)
    check_reward_model(
      config.reward_model, mesh, config.model.dtype, tokenizer, config.model.vocab_size
    )
    with (
      contextlib.nullcontext(runner)
      if runner
      else open_reward_runner(config.reward, config.scoring) as opened
    ):
      check_rewards(config, opened)
    check_weights(config, mesh, tokenizer, done)
  except OSError as error:
    raise UserError(f"{error.filename} can't be read: {error.strerror}") from error
  except ValueError as error:
    raise UserError(str(error)) from error
