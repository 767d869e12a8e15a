"""What can be found wrong with a run before anything is compiled."""

from collections.abc import Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from transformers import PreTrainedTokenizerFast

from pgax.algorithms import loss, prepare
from pgax.data.prompts import CollateDemonstrations, CollatePrompts
from pgax.models.decoder import Decoder
from pgax.models.partitioning import param_shardings
from pgax.training.config import RunConfig
from pgax.training.errors import UserError
from pgax.training.mesh import make_mesh
from pgax.training.policy import check_params
from pgax.types import Example, Feedback, Rollout

# All problems are gone through; of a million, as they are generated, a spread.
_CHECKED_PROBLEMS = 1_000
_MANY_PROBLEMS = 200_000


def check_run(
  config: RunConfig, tokenizer: PreTrainedTokenizerFast, starts: bool = True
) -> None:
  """Refuses a run that would fail later.

  Args:
    config: the run.
    tokenizer: of the model.
    starts: whether it is at its beginning, where it reads the policies of other runs.

  Raises:
    UserError: naming the setting, its value and what is allowed.
  """
  sampling = config.sampling
  prompts = CollatePrompts(tokenizer, sampling.max_prompt_tokens)
  demonstrations = CollateDemonstrations(prompts, sampling.max_tokens)
  try:
    mesh = make_mesh(config.mesh.fsdp, config.mesh.model)
    _check_vocabulary(config, tokenizer)
    _check_devices(config, mesh)
    param_shardings(Decoder(config.model), mesh)
    _check_algorithm(config)
    _check_lengths(config, demonstrations)
    if starts:
      _check_sources(config, mesh)
  except ValueError as error:
    raise UserError(str(error)) from error


def _check_vocabulary(config: RunConfig, tokenizer: PreTrainedTokenizerFast) -> None:
  size = len(tokenizer)
  if config.model.vocab_size < size:
    raise ValueError(
      f"model.vocab_size is {config.model.vocab_size}; the tokenizer has {size} tokens, "
      "and the model needs at least as many"
    )


def _check_devices(config: RunConfig, mesh: Mesh) -> None:
  devices = mesh.shape["data"] * mesh.shape["fsdp"]
  parts = config.algorithm.minibatches * config.microbatches
  if config.sampling.prompts % (parts * devices):
    raise ValueError(
      f"sampling.prompts is {config.sampling.prompts}; it must be a multiple of "
      f"minibatches * microbatches * devices = {config.algorithm.minibatches} * "
      f"{config.microbatches} * {devices}"
    )
  warm = config.warm_start
  if warm.steps and warm.batch_size % devices:
    raise ValueError(
      f"warm_start.batch_size is {warm.batch_size}; it must be a multiple of the {devices} "
      "devices that a batch is spread over"
    )


def _check_algorithm(config: RunConfig) -> None:
  """Traces the algorithm on shapes alone: what it refuses, it refuses here."""
  s = config.sampling
  prompt, group = (s.prompts, s.max_prompt_tokens), (s.prompts, s.group)
  completion = (*group, s.max_tokens)

  def array(shape: tuple[int, ...], dtype: type) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.dtype(dtype))

  floats = array(completion, np.float32)
  rollout = Rollout(
    prompt_tokens=array(prompt, np.int32),
    prompt_mask=array(prompt, np.bool_),
    tokens=array(completion, np.int32),
    mask=array(completion, np.bool_),
    logp=floats,
    sample_logp=floats,
    finished=array(group, np.bool_),
  )
  steps = config.step_reward is not None
  feedback = Feedback(
    rewards=array(group, np.float32),
    valid=array(group, np.bool_),
    greedy_rewards=array((s.prompts,), np.float32)
    if config.algorithm.greedy_baseline
    else None,
    step_rewards=floats if steps else None,
    step_ends=array(completion, np.bool_) if steps else None,
  )

  def whole(rollout, feedback, logp):
    values = logp if config.algorithm.critic else None
    batch = prepare(config.algorithm, rollout, feedback, logp, logp, values=values)
    return loss(config.algorithm, logp, batch, outputs=values)

  jax.eval_shape(whole, rollout, feedback, floats)
  critic = config.algorithm.critic
  if critic and critic.pretraining >= config.steps > 0:
    raise ValueError(
      f"pretraining is {critic.pretraining} and steps is {config.steps}; the critic would "
      "learn in all of them and the policy in none. Raise steps, or lower pretraining"
    )


def _check_sources(config: RunConfig, mesh: Mesh) -> None:
  """The folders of other runs whose policies this one starts from."""
  critic_from = config.critic.start if config.algorithm.critic else "fresh"
  for folder in {config.policy_from, critic_from} - {"", "policy", "fresh"}:
    check_params(Decoder(config.model), mesh, Path(folder))


def _check_lengths(config: RunConfig, demonstrations: CollateDemonstrations) -> None:
  for examples in (config.task.train, config.task.held_out):
    for index in _checked(examples):
      demonstrations.prompts.ids(examples[index])
  if config.warm_start.steps:
    for index in _checked(config.task.train):
      demonstrations.ids(config.task.train[index])


def _checked(examples: Sequence[Example]) -> range:
  many = len(examples) > _MANY_PROBLEMS
  return range(0, len(examples), len(examples) // _CHECKED_PROBLEMS if many else 1)
