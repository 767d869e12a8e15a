"""Checks of the weights that a run starts from."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path

from jax.sharding import Mesh
from transformers import PreTrainedTokenizerFast

from pgax.errors import UserError
from pgax.models import hf
from pgax.models.decoder import Decoder
from pgax.rollout.config import RewardModelConfig
from pgax.rollout.reward_model import check_reward_model
from pgax.runs.workdir import read_config
from pgax.training.config import RunConfig
from pgax.training.policy import check_critic, check_params, is_reward_model
from pgax.training.progress import Progress


def check_weights(
  config: RunConfig,
  mesh: Mesh,
  tokenizer: PreTrainedTokenizerFast,
  done: Progress | None,
) -> None:
  """Checks the directory of a model, and folders of other runs, that are still to be read.

  Args:
    config: configuration of the run.
    mesh: mesh of devices.
    tokenizer: tokenizer of the model.
    done: progress of the run; None for a new run.

  Raises:
    ValueError: with the setting, the folder and what is wrong with it.
  """
  if config.model_path:
    tokens = config.sampling.max_prompt_tokens + config.sampling.max_completion_tokens
    hf.check_length(Path(config.model_path), tokens)
  if done is None and config.model_path:
    hf.check(Path(config.model_path), config.model)
  folders = {}
  if done is None and config.init_from_run:
    folders["init_from_run"] = config.init_from_run
  critic_from = config.critic.start
  critic_starts = config.trained_algorithm.critic and (done is None or done.is_supervised)
  if critic_starts and critic_from not in ("policy", "fresh"):
    if is_reward_model(Path(critic_from)):
      check_critic_start(config, mesh, tokenizer)
    else:
      folders["critic.start"] = critic_from
  for name, folder in folders.items():
    try:
      check_params(Decoder(config.model), mesh, Path(folder))
      _check_same_model(config, read_config(Path(folder)) or {})
    except UserError as error:
      raise UserError(f"{name}: {error}") from None


def check_critic_start(
  config: RunConfig, mesh: Mesh, tokenizer: PreTrainedTokenizerFast
) -> None:
  """Checks that the critic can start from the reward model that `critic.start` names."""
  model, source = config.model, RewardModelConfig(path=config.critic.start)
  try:
    check_critic(model, Path(source.path))
    check_reward_model(source, mesh, model.dtype, tokenizer, model.vocab_size)
  except (UserError, ValueError) as error:
    raise UserError(f"critic.start: {error}") from None


def _check_same_model(config: RunConfig, saved: Mapping) -> None:
  """Compares settings that shapes don't show, such as the base of rotary wavelengths."""
  model = dict(saved.get("model", {}))
  if path := model.pop("path", ""):
    # Its settings are that directory's, and its tokenizer is not this run's.
    if path == config.model_path:
      return
    raise UserError(
      f"its policy has model.path {path!r}; give its folder 'export' as model.path"
    )
  ours = json.loads(json.dumps(dataclasses.asdict(config.model)))  # as in a file
  for name, value in model.items():
    if ours.get(name) != value:
      raise UserError(f"its model.{name} is {value}, and this run's is {ours.get(name)}")
