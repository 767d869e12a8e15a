"""The least memory that a run needs, by arithmetic, before anything is compiled."""

from collections.abc import Mapping
from pathlib import Path

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from pgax.distributed.partitioning import batch_shards, device_bytes
from pgax.learner.compiled import compiled_steps
from pgax.learner.microbatches import plan_rows
from pgax.models.config import DecoderConfig
from pgax.training.batches import prompts_computed
from pgax.training.config import RunConfig

_GIB = 2**30
# Tokens, log-probability, mask and advantage of a completion's token.
_TOKEN_BYTES = 4 + 4 + 1 + 4
_CGROUP_LIMITS = (
  "/sys/fs/cgroup/memory.max",
  "/sys/fs/cgroup/memory/memory.limit_in_bytes",
)


def check_memory(config: RunConfig, mesh: Mesh) -> None:
  """Checks that a run can fit into memory at all.

  Args:
    config: configuration of the run.
    mesh: mesh of devices.

  Raises:
    ValueError: if the least that it needs is more than a device has, with the numbers.
  """
  limit = device_memory()
  if limit is None:
    return
  for phase, parts in (
    ("sampling", sampling_bytes(config, mesh)),
    ("an update", update_bytes(config, mesh)),
  ):
    if (need := sum(parts.values())) > limit:
      raise ValueError(
        f"{phase} needs at least {_gib(need)} on a device, which has {_gib(limit)}: "
        f"{_listed(parts)}. Lower sampling.group_size, sampling.max_completion_tokens or "
        "sampling.prompts_per_step, raise learner.microbatches, or take more devices"
      )


def sampling_bytes(config: RunConfig, mesh: Mesh) -> dict[str, int]:
  """Returns the least number of bytes on a device while completions are sampled.

  Args:
    config: configuration of the run.
    mesh: mesh of devices.

  Returns:
    Bytes by what they are for.
  """
  sampling, shards = config.sampling, batch_shards(mesh)
  prompts = prompts_computed(config, mesh) // config.scoring.pipeline_chunks
  rows = sampling.slots or prompts * sampling.group_size
  slots = prompts * sampling.max_prompt_tokens + rows * sampling.max_completion_tokens
  return {
    "the state": _state_bytes(config, mesh),
    "keys and values": slots * _cache_bytes(config.model) // shards,
    "completions": _completion_bytes(config) // shards,
  }


def update_bytes(config: RunConfig, mesh: Mesh) -> dict[str, int]:
  """Returns the least number of bytes on a device in an optimizer step.

  Args:
    config: configuration of the run.
    mesh: mesh of devices.

  Returns:
    Bytes by what they are for.
  """
  sampling, model = config.sampling, config.model
  steps = compiled_steps(config.step_config, mesh)
  state, shards = steps.abstract, batch_shards(mesh)
  prompts = prompts_computed(config, mesh) // config.trained_algorithm.minibatches
  shape = prompts, sampling.group_size, sampling.max_completion_tokens
  plan = plan_rows(steps.learner, shape)
  completions = prompts * sampling.group_size // (plan.microbatches * shards)
  read = prompts // (plan.prompt_chunks * shards) * sampling.max_prompt_tokens
  tokens = max(completions * sampling.max_completion_tokens, read)
  layer_inputs = tokens * model.num_layers * model.embed_dim * _itemsize(model)
  chunk = min(config.learner.logit_chunk, sampling.max_completion_tokens)
  return {
    "the state": _state_bytes(config, mesh),
    "gradients": device_bytes(
      (state.params, state.critic_params), config.learner.grad_dtype
    ),
    "layer inputs": layer_inputs,
    "prompts": prompts * sampling.max_prompt_tokens * _cache_bytes(model) // shards,
    "logits": completions * chunk * model.vocab_size * 4 // mesh.shape["model"],
    "completions": _completion_bytes(config) // shards,
  }


def device_memory() -> int | None:
  """Returns how many bytes a device can hold; None if that is unknown.

  Devices that are CPUs share the memory of the machine, or of its container.
  """
  stats = jax.local_devices()[0].memory_stats() or {}
  if "bytes_limit" in stats:
    return int(stats["bytes_limit"])
  if jax.default_backend() != "cpu":
    return None
  limits = [limit for limit in (_physical_memory(), *_container_limits()) if limit]
  return min(limits) // jax.local_device_count() if limits else None


def _physical_memory() -> int | None:
  for line in _text("/proc/meminfo").splitlines():
    name, _, value = line.partition(":")
    if name == "MemTotal":
      return int(value.split()[0]) * 1024
  return None


def _container_limits() -> list[int]:
  texts = (_text(path).strip() for path in _CGROUP_LIMITS)
  return [int(text) for text in texts if text.isdigit()]


def _text(path: str) -> str:
  try:
    return Path(path).read_text()
  except OSError:
    return ""


def _state_bytes(config: RunConfig, mesh: Mesh) -> int:
  state, lag = compiled_steps(config.step_config, mesh).abstract, config.sampling.lag
  policies = lag + 1 if lag else 0  # those that rollouts in flight are drawn with
  return device_bytes(state) + policies * device_bytes(state.params)


def _cache_bytes(model: DecoderConfig) -> int:
  """Bytes of the keys and values of a token."""
  return 2 * model.num_layers * model.num_kv_heads * model.head_dim * _itemsize(model)


def _completion_bytes(config: RunConfig) -> int:
  sampling = config.sampling
  return sampling.completions_per_step * sampling.max_completion_tokens * _TOKEN_BYTES


def _itemsize(model: DecoderConfig) -> int:
  return jnp.dtype(model.compute_dtype).itemsize


def _gib(count: int) -> str:
  return f"{count / _GIB:,.1f} GiB"


def _listed(parts: Mapping[str, int]) -> str:
  return ", ".join(f"{name} {_gib(count)}" for name, count in parts.items())
