"""The parts of a block that work on each token alone: normalization, feed-forward."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp

from pgax.models.config import DecoderConfig
from pgax.models.layout import BATCH, Layout, constrain
from pgax.types import Array

# Collection of adapters `a`, `b` of a module's matrices, which is read if it is there.
ADAPTERS = "adapters"

fan_in = nn.initializers.variance_scaling(1.0, "fan_in", "normal")
zeros = nn.initializers.zeros


def matrix(
  module: nn.Module,
  name: str,
  init: nn.initializers.Initializer,
  axes: tuple[str, ...],
  shape: tuple[int, ...],
) -> Array:
  """Creates a parameter, whose gradient is sharded as the parameter is.

  Args:
    module: module with a `layout`.
    name: name of the parameter.
    init: initializer.
    axes: logical names of its axes.
    shape: its shape.

  Returns:
    The parameter.
  """
  value = module.param(name, nn.with_logical_partitioning(init, axes), shape)
  return constrain(module.layout, value, *axes)


def product(x: Array, weight: Array, inputs: int = 1) -> Array:
  """Multiplies activations by a matrix, which is cast to their dtype.

  If that is narrower than the matrix, the gradient of the matrix is a product in the
  matrix's own dtype, and so is its sum over devices: rounded parts would add up to an error
  that grows with their number.

  Args:
    x: `[..., *inputs]`.
    weight: `[*inputs, *outputs]`.
    inputs: number of input axes.

  Returns:
    `[..., *outputs]`.
  """
  if x.dtype == weight.dtype:
    return jnp.tensordot(x, weight, inputs)
  return _narrow_product(inputs, x, weight)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _narrow_product(inputs: int, x: Array, weight: Array) -> Array:
  return jnp.tensordot(x, weight.astype(x.dtype), inputs)


def _forward(inputs: int, x: Array, weight: Array) -> tuple[Array, tuple[Array, Array]]:
  return _narrow_product(inputs, x, weight), (x, weight)


def _backward(
  inputs: int, saved: tuple[Array, Array], gradient: Array
) -> tuple[Array, Array]:
  x, weight = saved
  rows = tuple(range(x.ndim - inputs))
  outputs = tuple(range(len(rows), gradient.ndim)), tuple(range(inputs, weight.ndim))
  of_x = jax.lax.dot_general(gradient, weight.astype(x.dtype), (outputs, ((), ())))
  of_weight = jax.lax.dot_general(
    x, gradient, ((rows, rows), ((), ())), preferred_element_type=weight.dtype
  )
  return of_x, of_weight


_narrow_product.defvjp(_forward, _backward)


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
  a, b = (module.get_variable(ADAPTERS, name)[x] for x in "ab")
  return out + product(product(x, a, a.ndim - 1), b)


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
  layout: Layout | None = None

  @nn.compact
  def __call__(self, x: Array) -> Array:
    c = self.config
    # Flattened to a matrix of tokens: with more axes XLA's CPU backend transposes gradients
    # before it multiplies them, which takes longer than the product.
    shape, x = x.shape, x.reshape(-1, x.shape[-1])
    gate, up = (self._wide(name, x) for name in ("gate", "up"))
    narrow = ("mlp", "embed")
    down = matrix(self, "down", fan_in, narrow, (c.mlp_dim, c.embed_dim))
    if c.mlp_bias:
      wide = nn.with_logical_partitioning(zeros, ("mlp",))
      gate += self.param("gate_bias", wide, (c.mlp_dim,)).astype(x.dtype)
      up += self.param("up_bias", wide, (c.mlp_dim,)).astype(x.dtype)
    hidden = activate(c, gate) * up
    out = adapted(self, "down", hidden, product(hidden, down))
    if c.mlp_bias:
      narrow = nn.with_logical_partitioning(zeros, ("embed",))
      out += self.param("down_bias", narrow, (c.embed_dim,)).astype(x.dtype)
    return out.reshape(shape)

  def _wide(self, name: str, x: Array) -> Array:
    """Multiplies tokens `[M, E]` by a matrix to the width of the layer."""
    c = self.config
    weight = matrix(self, name, fan_in, ("embed", "mlp"), (c.embed_dim, c.mlp_dim))
    out = adapted(self, name, x, product(x, weight))
    return constrain(self.layout, out, BATCH, "mlp")
