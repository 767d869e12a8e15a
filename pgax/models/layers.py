"""The parts of a block that work on each token alone: normalization, feed-forward."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from pgax.models.config import DecoderConfig
from pgax.types import Array

# Collection of adapters `a`, `b` of a module's matrices, which is read if it is there.
ADAPTERS = "adapters"

fan_in = nn.initializers.variance_scaling(1.0, "fan_in", "normal")
zeros = nn.initializers.zeros


def adapted(module: nn.Module, name: str, x: Array, out: Array) -> Array:
  """Adds `x a b` to the product of `x` and a matrix, if the matrix has an adapter.

  Args:
    module: module that has the matrix.
    name: name of the matrix.
    x: input of the product, `[..., *inputs]`.
    out: the product, `[..., *outputs]`.

  Returns:
    `[..., *outputs]`.
  """
  if not module.has_variable(ADAPTERS, name):
    return out
  a, b = (module.get_variable(ADAPTERS, name)[x].astype(out.dtype) for x in "ab")
  narrow = jnp.tensordot(x, a, a.ndim - 1)
  return out + jnp.tensordot(narrow, b, 1)


class RMSNorm(nn.Module):
  """Root-mean-square normalization of the last axis (arXiv 1910.07467), in float32.

  `x / sqrt(mean(x**2) + eps)` times `scale`, or times `1 + scale` with a unit offset.
  """

  config: DecoderConfig

  @nn.compact
  def __call__(self, x: Array) -> Array:
    offset = self.config.unit_offset_norm
    init = zeros if offset else nn.initializers.ones
    init = nn.with_logical_partitioning(init, ("norm",))
    scale = self.param("scale", init, (x.shape[-1],))
    wide = x.astype(jnp.float32)
    mean_square = jnp.mean(wide**2, axis=-1, keepdims=True)
    normal = wide * jax.lax.rsqrt(mean_square + self.config.norm_eps)
    return (normal * (1.0 + scale if offset else scale)).astype(x.dtype)


def activate(config: DecoderConfig, gate: Array) -> Array:
  """Applies the activation of the gate."""
  if config.activation == "silu":
    return nn.silu(gate)
  return nn.gelu(gate, approximate=True)


class GatedMLP(nn.Module):
  """Gated feed-forward layer, `(f(x W_gate) * x W_up) W_down` (arXiv 2002.05202).

  `f` is SiLU (SwiGLU) or the tanh approximation of GELU (GeGLU).
  """

  config: DecoderConfig

  @nn.compact
  def __call__(self, x: Array) -> Array:
    c = self.config
    wide = nn.with_logical_partitioning(fan_in, ("embed", "mlp"))
    narrow = nn.with_logical_partitioning(fan_in, ("mlp", "embed"))
    # Flattened to a matrix of tokens: with more axes XLA's CPU backend transposes gradients
    # before it multiplies them, which takes longer than the product.
    shape, x = x.shape, x.reshape(-1, x.shape[-1])
    gate = x @ self.param("gate", wide, (c.embed_dim, c.mlp_dim)).astype(x.dtype)
    gate = adapted(self, "gate", x, gate)
    up = x @ self.param("up", wide, (c.embed_dim, c.mlp_dim)).astype(x.dtype)
    up = adapted(self, "up", x, up)
    down = self.param("down", narrow, (c.mlp_dim, c.embed_dim)).astype(x.dtype)
    if c.mlp_bias:
      wide = nn.with_logical_partitioning(zeros, ("mlp",))
      gate += self.param("gate_bias", wide, (c.mlp_dim,)).astype(x.dtype)
      up += self.param("up_bias", wide, (c.mlp_dim,)).astype(x.dtype)
    hidden = activate(c, gate) * up
    out = adapted(self, "down", hidden, hidden @ down)
    if c.mlp_bias:
      narrow = nn.with_logical_partitioning(zeros, ("embed",))
      out += self.param("down_bias", narrow, (c.embed_dim,)).astype(x.dtype)
    return out.reshape(shape)
