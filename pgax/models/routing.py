"""The load-balancing loss of a mixture of experts, and the counts that it needs."""

import jax
import jax.numpy as jnp

from pgax.types import Array


def balance_weights(chosen: Array, tokens: Array) -> Array:
  """Computes the weights of the load-balancing loss from the use of experts.

  The loss is `X sum_e f_e P_e`, where `f_e` is the number of times that a token chooses
  expert `e`, and `P_e` its mean probability; it is `k` if both are uniform. `f` has no
  gradient. So the loss of a batch is a weighted sum, `sum_e w_e p_e`, of the probabilities
  summed over its tokens, and losses of its parts add up. Source: Switch Transformer, arXiv
  2101.03961, with `f` and `P` over all layers as in transformers.

  Args:
    chosen: `[X]`, number of times that each expert was chosen in the global batch.
    tokens: number of tokens of the global batch, each counted once a layer.

  Returns:
    `[X]` float32 weights, to multiply `RouterLoad.probability` by.
  """
  tokens = jnp.maximum(tokens, 1).astype(jnp.float32)
  return jax.lax.stop_gradient(len(chosen) * chosen / tokens**2)


def count_choices(experts: Array, real: Array, num_experts: int) -> tuple[Array, Array]:
  """Counts how often recorded experts were chosen.

  Args:
    experts: `[..., layers, k]`.
    real: `[...]` bool, false on padding, which is not counted.
    num_experts: number of experts, `X`.

  Returns:
    `[X]` float32 counts, and the number of tokens, each counted once a layer.
  """
  layers = experts.shape[-2]
  weight = jnp.broadcast_to(real[..., None, None], experts.shape).astype(jnp.float32)
  zeros = jnp.zeros(num_experts)
  counts = zeros.at[experts.reshape(-1).astype(jnp.int32)].add(weight.reshape(-1))
  return counts, layers * jnp.sum(real, dtype=jnp.float32)
