"""The routing of a mixture of experts: recorded, replayed, counted and balanced."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pgax.models.cache import Cache
from pgax.models.decoder import Decoder
from pgax.models.experts import REPLAY, ROUTING, RouterLoad
from pgax.models.heads import ScalarDecoder
from pgax.types import Array, PyTree


class Routing(NamedTuple):
  """What a router did in one forward pass.

  Attributes:
    experts: `[N, G, L, layers, k]`, the experts of each token, uint8 or int32.
    load: use of the experts by the real tokens.
  """

  experts: Array
  load: RouterLoad


def read_tokens(
  model: Decoder | ScalarDecoder,
  params: PyTree,
  *arguments: Any,
  experts: Array | None = None,
  **named: Any,
) -> tuple[Array, Cache, Routing | None]:
  """Applies `model.features` with the routing in and out.

  Args:
    model: a decoder; one with a scalar head reports no routing.
    params: its parameters.
    *arguments: arguments of `features`.
    experts: `[N, G, L, layers, k]`, experts that compute the tokens, whose weights are
      still the router's (router replay, arXiv 2510.11370); None lets the router choose.
    **named: further arguments of `features`.

  Returns:
    Hidden states, the cache, and the `Routing`, which is None for a model without experts.
  """
  method = model.features
  if not model.config.num_experts or isinstance(model, ScalarDecoder):
    return *model.apply(params, *arguments, **named, method=method), None
  if experts is not None:
    by_layer = jnp.moveaxis(experts, -2, 0)
    params = dict(params) | {REPLAY: {"blocks": {"experts": {"experts": by_layer}}}}
  (hidden, cache), variables = model.apply(
    params, *arguments, **named, method=method, mutable=[ROUTING]
  )
  written = variables[ROUTING]["blocks"]
  if model.unrolled:
    layers = [written[f"layers_{i}"] for i in range(model.config.num_layers)]
    written = jax.tree.map(lambda *x: jnp.stack(x), *layers)
  written = written["experts"]
  choices = jnp.moveaxis(written["experts"], 0, -2)
  if model.config.num_experts <= 256:
    choices = choices.astype(jnp.uint8)
  load = jax.tree.map(lambda x: jnp.sum(x, axis=0), written["load"])
  return hidden, cache, Routing(choices, load)


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
