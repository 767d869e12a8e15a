"""Checks of settings against each other, the tokenizer and the devices."""

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from transformers import PreTrainedTokenizerFast

from pgax.algorithms.checks import trace, unused_inputs
from pgax.distributed.partitioning import batch_shards
from pgax.learner.config import check_decay
from pgax.models.decoder import Decoder
from pgax.rollout.config import RewardModelConfig
from pgax.training.batches import prompts_computed
from pgax.training.config import RunConfig
from pgax.training.policy import eos_ids

# Setting that provides each input of an algorithm.
_INPUTS = {
  "step_rewards": "step_reward",
  "baseline": "algorithm.baseline",
  "greedy_baseline": "algorithm.greedy_baseline",
  "components": "algorithm.components",
}


def check_vocabulary(config: RunConfig, tokenizer: PreTrainedTokenizerFast) -> None:
  """Checks that the model has the tokenizer's tokens, and that one of them ends a text."""
  size, ends = config.model.vocab_size, eos_ids(config.model_path, tokenizer)
  if not ends:
    raise ValueError("neither the tokenizer nor the model names a token that ends a text")
  # A checkpoint's tokenizer may have more tokens than its model, which no text uses
  # (Gemma 3 has one for images): there only the tokens of the problems count.
  largest = max(ends) if config.model_path else len(tokenizer) - 1
  if largest >= size:
    raise ValueError(
      f"model.vocab_size is {size}; the tokenizer has {len(tokenizer)} tokens, and the "
      f"model needs at least {largest + 1}"
    )


def check_attention(config: RunConfig) -> None:
  """Checks that the model's attention can be computed, on these devices."""
  packed = config.supervised.steps and config.supervised.row_tokens
  if config.model.attention == "kernel" and packed:
    raise ValueError(
      "model.attention is 'kernel', which can't compute rows of several texts; "
      f"supervised.row_tokens is {config.supervised.row_tokens} and must be 0"
    )
  tokens = jax.ShapeDtypeStruct((1, 1, 2), jnp.int32)  # one token would be decoding
  jax.eval_shape(Decoder(config.model).init, jax.random.key(0), tokens, tokens)


def check_divisibility(config: RunConfig, mesh: Mesh) -> None:
  """Checks that sizes which are not padded divide into devices and chunks."""
  devices, sampling = batch_shards(mesh), config.sampling
  prompts, chunks = prompts_computed(config, mesh), config.scoring.pipeline_chunks
  if sampling.prompts_per_step % chunks:
    raise ValueError(
      f"sampling.prompts_per_step is {sampling.prompts_per_step}; it must be a multiple of "
      f"scoring.pipeline_chunks, which is {chunks}"
    )
  completions = prompts // chunks * sampling.group_size
  if sampling.slots > completions:
    raise ValueError(
      f"sampling.slots is {sampling.slots}; each of {chunks} scoring.pipeline_chunks has "
      f"{completions} completions"
    )
  stage = config.supervised
  if stage.steps and stage.batch_size % (stage.microbatches * devices):
    raise ValueError(
      f"supervised.batch_size is {stage.batch_size}; it must be a multiple of "
      f"microbatches * devices = {stage.microbatches} * {devices}"
    )


def check_algorithm(config: RunConfig) -> None:
  """Traces the algorithm on shapes alone, so that it can reject unusable inputs."""
  algorithm, s = config.trained_algorithm, config.sampling
  shapes = {
    "prompts": s.prompts_per_step,
    "group": s.group_size,
    "prompt_length": s.max_prompt_tokens,
    "completion_length": s.max_completion_tokens,
  }
  steps = config.step_reward is not None
  try:
    trace(algorithm, **shapes, step_rewards=steps)
  except TypeError as error:  # arithmetic with None
    raise ValueError(
      f"the algorithm can't be traced: {error}. A surrogate that reads batch.ref_logp at "
      "some shapes only is not recognized as one that needs the reference; read it always"
    ) from error
  for name in unused_inputs(algorithm, **shapes, step_rewards=steps):
    raise ValueError(
      f"{_INPUTS[name]} is given, but advantage {algorithm.advantage!r} does not use "
      "it; remove it, or choose an advantage that uses it"
    )
  if algorithm.components and algorithm.shaping:
    raise ValueError(
      f"shaping is {algorithm.shaping}; it changes the reward, but this algorithm learns "
      f"from the scores {algorithm.components}"
    )
  if steps and algorithm.shaping:
    raise ValueError(
      f"shaping is {algorithm.shaping}; it changes rewards of completions, but this "
      "algorithm learns from step rewards"
    )
  if algorithm.dynamic_sampling and s.group_size < 2:
    raise ValueError(
      "sampling.group_size is 1 and the algorithm drops groups of equal rewards, so it "
      "would drop all of them. The group size must be at least 2"
    )
  critic = algorithm.critic
  if critic and critic.pretraining_steps >= config.steps > 0:
    raise ValueError(
      f"pretraining is {critic.pretraining_steps} and steps is {config.steps}; the critic "
      "would be trained in all of them and the policy in none. Raise steps, or lower "
      "pretraining"
    )


def check_reward_model_settings(config: RewardModelConfig) -> None:
  """Rejects reward model settings without a path, where they would have no effect."""
  for name in () if config.path else ("weight", "function_weight", "truncation_reward"):
    if (value := getattr(config, name)) != getattr(RewardModelConfig, name):
      raise ValueError(
        f"reward_model.{name} is {value} and reward_model.path is ''; the setting needs a "
        "reward model"
      )


def check_optimizers(config: RunConfig) -> None:
  """Rejects a supervised stage whose optimizer has a state of another layout."""
  if not config.supervised.steps:
    return
  for name in ("name", "moment_dtype"):
    optimizers = config.optimizer, config.supervised.optimizer
    policy, supervised = (getattr(optimizer, name) for optimizer in optimizers)
    if policy != supervised:
      raise ValueError(
        f"optimizer.{name} is {policy!r} and supervised.optimizer.{name} is "
        f"{supervised!r}; a run has one layout of the optimizer's state, so both must be "
        "the same"
      )
  if config.optimizer.name == "adafactor":
    rates = config.optimizer.b1, config.supervised.optimizer.b1
    if (rates[0] == 0) != (rates[1] == 0):
      raise ValueError(
        f"optimizer.b1 is {rates[0]} and supervised.optimizer.b1 is {rates[1]}; with "
        "adafactor, 0 has no first moment, so both must be 0 or neither"
      )


def check_decays(config: RunConfig) -> None:
  """Rejects learning rates that reach 0 before the last optimizer step."""
  algorithm = config.trained_algorithm
  critic = algorithm.critic
  updates = algorithm.epochs * algorithm.minibatches
  critic_only = critic.pretraining_steps if critic else 0
  check_decay(config.optimizer, "optimizer", (config.steps - critic_only) * updates)
  if critic:
    check_decay(config.critic.optimizer, "critic.optimizer", config.steps * updates)
