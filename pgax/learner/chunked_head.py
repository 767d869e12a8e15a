"""The output layer of a policy, computed in chunks of positions.

A head is a function of the log-probabilities of all tokens at some positions. Only its
outputs, a number a position, are ever held for all positions, so a quantity of the complete
vocabulary costs no memory that grows with it.
"""

import dataclasses
import functools
import math
from typing import Protocol

import jax
import jax.numpy as jnp

from pgax.models.decoder import Decoder, finish_logits
from pgax.models.layout import BATCH, constrain
from pgax.ops import logprobs
from pgax.types import Array, PyTree

_IMPOSSIBLE = -1e30  # finite: times a probability of 0 it is 0
_VOCAB_MULTIPLE = 128  # columns that devices multiply by at a time


class Head(Protocol):
  """A quantity of every token, by the distribution that it is drawn from.

  It is differentiated, and compiled in: a function that is defined once has one program.
  """

  def __call__(self, log_probs: Array, tokens: Array) -> Array:
    """Computes the quantity at some positions.

    Args:
      log_probs: `[A, M, chunk, V]` float32 log-probabilities, in nats; those of columns
        past the vocabulary, if there are any, are so low that their probability is 0.
      tokens: `[A, M, chunk]` int32.

    Returns:
      `[A, M, chunk]` float32.
    """


def entropy(log_probs: Array, tokens: Array) -> Array:
  """The entropy of the distribution that each token is drawn from, as a `Head`."""
  del tokens
  return logprobs.entropy(log_probs)


def chunked_head(
  model: Decoder,
  params: PyTree,
  hidden: Array,
  tokens: Array,
  heads: tuple[Head, ...] = (logprobs.token_logp, entropy),
  *,
  temperature: Array | float = 1.0,
  chunk: int = 128,
) -> tuple[Array, ...]:
  """Computes heads of tokens.

  Logits of `chunk` positions of all completions are in memory at a time, and are computed
  again in the backward pass. The output matrix is cast, and collected from the devices that
  share it, once for all chunks; so is the sum of its gradient.

  Args:
    model: decoder of the policy.
    params: its parameters.
    hidden: `[A, M, T, E]`, hidden states before the tokens.
    tokens: `[A, M, T]` int32.
    heads: the quantities to compute.
    temperature: temperature of the policy; it gets no gradient.
    chunk: number of positions in a chunk, at least 1.

  Returns:
    An array `[A, M, T]` for each head.
  """
  weights = model.apply(params, method=model.output_matrix)
  layer = _OutputLayer(model, chunk, heads)
  return _apply(layer, hidden, weights, tokens, jnp.asarray(temperature))


@dataclasses.dataclass(frozen=True)
class _OutputLayer:
  """What is static in `chunked_head`."""

  model: Decoder
  chunk: int
  heads: tuple[Head, ...]

  def columns(self, weights: Array, dtype: jnp.dtype) -> Array:
    """Returns the output matrix in a dtype, with columns for every device."""
    layout, size = self.model.layout, weights.shape[1]
    parts = layout.parts("vocab") if layout else 1
    padding = -size % (math.lcm(_VOCAB_MULTIPLE, parts) if size % parts else parts)
    weights = jnp.pad(weights.astype(dtype), ((0, 0), (0, padding)))
    return constrain(layout, weights, None, "vocab")

  def products(self, hidden: Array, columns: Array) -> Array:
    """Multiplies hidden states and columns, in float32."""
    products = jnp.matmul(hidden, columns, preferred_element_type=jnp.float32)
    return constrain(self.model.layout, products, BATCH, None, None, "vocab")

  def outputs(
    self, products: Array, tokens: Array, temperature: Array
  ) -> tuple[Array, ...]:
    """Computes the heads, by the products."""
    config = self.model.config
    logits = finish_logits(config, products)
    if logits.shape[-1] > config.vocab_size:
      real = jnp.arange(logits.shape[-1]) < config.vocab_size
      logits = jnp.where(real, logits, _IMPOSSIBLE)
    log_probs = logprobs.log_softmax(logits, temperature)
    return tuple(head(log_probs, tokens) for head in self.heads)

  def cut(self, x: Array) -> Array:
    """Cuts `[A, M, T, ...]` into chunks `[chunks, A, M, chunk, ...]`."""
    length = x.shape[2]
    count = self.count(length)
    size = self.chunk if count > 1 else length
    padding = [(0, 0)] * x.ndim
    padding[2] = (0, count * size - length)
    x = jnp.pad(x, padding).reshape(*x.shape[:2], count, size, *x.shape[3:])
    return jnp.moveaxis(x, 2, 0)

  def count(self, length: int) -> int:
    """Returns the number of chunks."""
    return -(-length // self.chunk)


def _joined(x: Array, length: int) -> Array:
  """Inverts `_OutputLayer.cut`."""
  x = jnp.moveaxis(x, 0, 2)
  return x.reshape(*x.shape[:2], -1, *x.shape[4:])[:, :, :length]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _apply(
  layer: _OutputLayer, hidden: Array, weights: Array, tokens: Array, temperature: Array
) -> tuple[Array, ...]:
  return _forward(layer, hidden, weights, tokens, temperature)[0]


def _forward(
  layer: _OutputLayer, hidden: Array, weights: Array, tokens: Array, temperature: Array
) -> tuple[tuple[Array, ...], tuple]:
  columns, length = layer.columns(weights, hidden.dtype), tokens.shape[2]

  def one(part: tuple[Array, Array]) -> tuple[Array, ...]:
    products = layer.products(part[0], columns)
    return products, *layer.outputs(products, part[1], temperature)

  products = None
  if layer.count(length) == 1:  # then the products are kept for the backward pass
    products, *outputs = one((hidden, tokens))
  else:
    parts = layer.cut(hidden), layer.cut(tokens)
    outputs = jax.lax.map(lambda part: one(part)[1:], parts)
    outputs = [_joined(x, length) for x in outputs]
  return tuple(outputs), (hidden, weights, tokens, temperature, products)


def _backward(layer: _OutputLayer, saved: tuple, gradients: tuple[Array, ...]) -> tuple:
  hidden, weights, tokens, temperature, products = saved
  columns, length = layer.columns(weights, hidden.dtype), tokens.shape[2]
  # A sum of its own on every device, so that they are added up once, at the end.
  layout = layer.model.layout
  shards = layout.parts(BATCH) if layout else 1
  shards = shards if len(hidden) % shards == 0 else 1

  def by_device(x: Array) -> Array:
    return x.reshape(shards, -1, x.shape[-1])

  def add(total: Array, part: tuple) -> tuple[Array, Array]:
    hidden, tokens, gradients, products = part
    if products is None:
      products = layer.products(hidden, columns)
    _, back = jax.vjp(lambda x: layer.outputs(x, tokens, temperature), products)
    (d_products,) = back(gradients)
    d_products = constrain(layout, d_products, BATCH, None, None, "vocab")
    d_hidden = jnp.einsum(
      "amtv,ev->amte", d_products, columns, preferred_element_type=jnp.float32
    )
    d_columns = jnp.einsum(
      "sre,srv->sev",
      by_device(hidden),
      by_device(d_products),
      preferred_element_type=jnp.float32,
    )
    total = constrain(layout, total + d_columns, BATCH, None, "vocab")
    return total, constrain(layout, d_hidden.astype(hidden.dtype), BATCH)

  zero = jnp.zeros((shards, *columns.shape))
  zero = constrain(layout, zero, BATCH, None, "vocab")
  if products is not None:
    total, d_hidden = add(zero, (hidden, tokens, gradients, products))
  else:
    parts = jax.tree.map(layer.cut, (hidden, tokens, gradients))
    total, d_hidden = jax.lax.scan(add, zero, (*parts, None))
    d_hidden = _joined(d_hidden, length)
  d_weights = jnp.sum(total, axis=0)[:, : weights.shape[1]]
  return d_hidden, d_weights.astype(weights.dtype), None, None


_apply.defvjp(_forward, _backward)
