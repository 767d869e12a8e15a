"""Mixture of experts: a router, and feed-forward layers of which each token uses a few."""

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp

from pgax.models.config import DecoderConfig
from pgax.models.grouped import grouped_product
from pgax.models.layers import ADAPTERS, activate, fan_in, matrix
from pgax.models.layout import Layout
from pgax.types import Array


@flax.struct.dataclass
class RouterLoad:
  """Use of the experts, summed over real tokens and layers; loads of parts add up.

  Attributes:
    chosen: `[X]` float32, number of times that each expert was chosen.
    probability: `[X]` float32, sum of the router's probabilities of each expert.
    tokens: float32 scalar, number of tokens, each counted once a layer.
  """

  chosen: Array
  probability: Array
  tokens: Array


@flax.struct.dataclass
class Routing:
  """The choices of the routers in one forward pass.

  Attributes:
    experts: `[N, G, L, layers, k]` experts of each token, uint8 if there are at most 256;
      without the axis of layers for one layer.
    load: use of the experts by the real tokens.
  """

  experts: Array
  load: RouterLoad


class Experts(nn.Module):
  """Gated feed-forward layers, mixed by a router (Mixtral, arXiv 2401.04088).

  The router is a softmax over all experts. A token is computed by its `experts_per_token`
  most probable experts, and their outputs are averaged by the probabilities, divided by
  their sum if `normalize_router`. That equals a softmax over the chosen experts alone. No
  token is dropped.
  """

  config: DecoderConfig
  layout: Layout | None = None

  @nn.compact
  def __call__(
    self, x: Array, real: Array, experts: Array | None = None
  ) -> tuple[Array, Routing]:
    """Applies the chosen experts to each token.

    Args:
      x: `[..., E]`.
      real: `[...]` bool, false on padding, which the load does not count.
      experts: `[..., k]`, experts that compute the tokens, whose weights are still the
        router's (router replay, arXiv 2510.11370); None lets the router choose.

    Returns:
      `[..., E]`, and the routing of this layer.
    """
    c = self.config
    shape, x = x.shape, x.reshape(-1, c.embed_dim)
    router_shape = c.embed_dim, c.num_experts
    router = matrix(self, "router", fan_in, ("embed", "experts"), router_shape)
    logits = jnp.matmul(x, router.astype(x.dtype), preferred_element_type=jnp.float32)
    probs = jax.nn.softmax(logits, axis=-1)
    if experts is None:
      _, chosen = jax.lax.top_k(probs, c.experts_per_token)
    else:
      chosen = experts.reshape(-1, c.experts_per_token).astype(jnp.int32)
    weights = jnp.take_along_axis(probs, chosen, axis=-1)
    if c.normalize_router:
      weights /= jnp.sum(weights, axis=-1, keepdims=True)
    choices = chosen.astype(jnp.uint8) if c.num_experts <= 256 else chosen
    routing = Routing(
      choices.reshape(*shape[:-1], -1), _load(probs, chosen, real.reshape(-1))
    )
    return self._mix(x, chosen, weights.astype(x.dtype)).reshape(shape), routing

  def _mix(self, x: Array, chosen: Array, weights: Array) -> Array:
    """Averages the outputs of the chosen experts `[M, k]` of tokens `[M, E]`."""
    c = self.config
    init = nn.initializers.variance_scaling(1.0, "fan_in", "normal", batch_axis=0)
    wide, wide_shape = ("experts", "embed", "mlp"), (c.embed_dim, c.mlp_dim)
    narrow, narrow_shape = ("experts", "mlp", "embed"), (c.mlp_dim, c.embed_dim)
    gate, up, down = (
      matrix(self, name, init, axes, (c.num_experts, *shape)).astype(x.dtype)
      for name, axes, shape in (
        ("gate", wide, wide_shape),
        ("up", wide, wide_shape),
        ("down", narrow, narrow_shape),
      )
    )
    # Each token is copied for each of its experts, and the copies are sorted by expert.
    experts = chosen.reshape(-1)
    order = jnp.argsort(experts)
    sizes = jnp.bincount(experts, length=c.num_experts).astype(jnp.int32)
    rows = x[order // c.experts_per_token]
    hidden = activate(c, self._product("gate", rows, gate, sizes))
    hidden *= self._product("up", rows, up, sizes)
    out = self._product("down", hidden, down, sizes)[jnp.argsort(order)]
    return jnp.sum(out.reshape(*chosen.shape, -1) * weights[..., None], axis=1)

  def _product(self, name: str, rows: Array, matrices: Array, sizes: Array) -> Array:
    """Multiplies each expert's rows by its matrix, and by its adapter if it has one."""
    out = grouped_product(rows, matrices, sizes)
    if not self.has_variable(ADAPTERS, name):
      return out
    a, b = (self.get_variable(ADAPTERS, name)[x].astype(rows.dtype) for x in "ab")
    return out + grouped_product(grouped_product(rows, a, sizes), b, sizes)


def _load(probs: Array, chosen: Array, real: Array) -> RouterLoad:
  """Sums the use of experts over the real tokens of a layer."""
  count = jnp.repeat(real, chosen.shape[-1]).astype(jnp.float32)
  return RouterLoad(
    jnp.zeros(probs.shape[-1]).at[chosen.reshape(-1)].add(count),
    jnp.sum(jnp.where(real[:, None], probs, 0), axis=0),
    jnp.sum(real, dtype=jnp.float32),
  )
