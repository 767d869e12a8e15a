"""Optimizers, and where their state lives."""

import optax
from jax.sharding import Mesh

from pgax.distributed.partitioning import replicated
from pgax.learner.config import OptimizerConfig
from pgax.models.parameters import matrices
from pgax.types import PyTree


def make_optimizer(config: OptimizerConfig) -> optax.GradientTransformation:
  """Builds AdamW with warmup and gradient clipping; weight decay applies to matrices.

  Args:
    config: optimizer settings.

  Returns:
    The optimizer.
  """
  if config.decay_steps:
    schedule = optax.warmup_cosine_decay_schedule(
      0.0, config.learning_rate, config.warmup_steps, config.decay_steps
    )
  elif config.warmup_steps:
    schedule = optax.linear_schedule(0.0, config.learning_rate, config.warmup_steps)
  else:
    schedule = optax.constant_schedule(config.learning_rate)
  adamw = optax.adamw(
    schedule,
    b1=config.b1,
    b2=config.b2,
    weight_decay=config.weight_decay,
    mask=matrices,
  )
  return optax.chain(optax.clip_by_global_norm(config.clip_norm), adamw)


def optimizer_shardings(
  optimizer: optax.GradientTransformation, opt_state: PyTree, params: PyTree, mesh: Mesh
) -> PyTree:
  """Shards moments as their parameters; everything else is replicated.

  Args:
    optimizer: the optimizer.
    opt_state: its state, as shapes.
    params: shardings of the parameters.
    mesh: mesh of devices.

  Returns:
    A pytree of shardings with the structure of `opt_state`.
  """
  return optax.tree.map_params(
    optimizer,
    lambda _, sharding: sharding,
    opt_state,
    params,
    transform_non_params=lambda _: replicated(mesh),
  )
