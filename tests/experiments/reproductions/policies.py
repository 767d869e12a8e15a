"""Policies of token reversal for tests."""

import jax
import jax.numpy as jnp

from experiments.reproductions.tpo.reversal_rollout import Task
from pgax.types import PyTree


def noisy_params(task: Task) -> PyTree:
  """Parameters whose attention and output differ clearly between positions and tokens."""
  tokens = jnp.zeros((1, 2 * task.length), jnp.int32)
  start = jax.jit(task.model.init, static_argnums=2)(jax.random.key(1), tokens, 1)
  leaves, tree = jax.tree.flatten(start)
  keys = jax.random.split(jax.random.key(2), len(leaves))
  noisy = [
    x + 0.1 * jax.random.normal(k, x.shape) for x, k in zip(leaves, keys, strict=True)
  ]
  return jax.tree.unflatten(tree, noisy)
