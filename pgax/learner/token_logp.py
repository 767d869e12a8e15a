"""Log-probabilities of tokens by the hidden states before them, in chunks."""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp

from pgax.models.decoder import Decoder, finish_logits
from pgax.models.layout import BATCH, constrain
from pgax.ops import logprobs
from pgax.types import Array, PyTree

_IMPOSSIBLE = -1e30  # finite: times a probability of 0 it is 0
_VOCAB_MULTIPLE = 128  # columns that devices multiply by at a time


def token_logp(
  model: Decoder,
  params: PyTree,
  hidden: Array,
  tokens: Array,
  temperature: Array | float,
  chunk: int,
) -> tuple[Array, Array]:
  """Computes log-probability and entropy of tokens.

  Logits of `chunk` positions of all completions are in memory at a time, and are computed
  again in the backward pass. The output matrix is cast, and collected from the devices that
  share it, once for all chunks; so is the sum of its gradient.

  Args:
    model: decoder of the policy.
    params: its parameters.
    hidden: `[A, M, T, E]`, hidden states before the tokens.
    tokens: `[A, M, T]` int32.
    temperature: temperature of the policy; it gets no gradient.
    chunk: number of positions in a chunk.

  Returns:
    Two arrays `[A, M, T]`, in nats.
  """
  weights = model.apply(params, method=model.output_matrix)
  head = _Head(model, chunk)
  return _token_logp(head, hidden, weights, tokens, jnp.asarray(temperature))


@dataclasses.dataclass(frozen=True)
class _Head:
  """What is static in `token_logp`."""

  model: Decoder
  chunk: int

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
  ) -> tuple[Array, Array]:
    """Log-probability and entropy, by the products."""
    config = self.model.config
    logits = finish_logits(config, products)
    if logits.shape[-1] > config.vocab_size:
      real = jnp.arange(logits.shape[-1]) < config.vocab_size
      logits = jnp.where(real, logits, _IMPOSSIBLE)
    log_probs = logprobs.log_softmax(logits, temperature)
    return logprobs.token_logp(log_probs, tokens), logprobs.entropy(log_probs)

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
  """Inverts `_Head.cut`."""
  x = jnp.moveaxis(x, 0, 2)
  return x.reshape(*x.shape[:2], -1, *x.shape[4:])[:, :, :length]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _token_logp(
  head: _Head, hidden: Array, weights: Array, tokens: Array, temperature: Array
) -> tuple[Array, Array]:
  return _forward(head, hidden, weights, tokens, temperature)[0]


def _forward(head, hidden, weights, tokens, temperature):
  columns, length = head.columns(weights, hidden.dtype), tokens.shape[2]

  def one(part: tuple[Array, Array]) -> tuple[Array, Array, Array]:
    products = head.products(part[0], columns)
    return products, *head.outputs(products, part[1], temperature)

  products = None
  if head.count(length) == 1:  # then the products are kept for the backward pass
    products, *outputs = one((hidden, tokens))
  else:
    parts = head.cut(hidden), head.cut(tokens)
    outputs = jax.lax.map(lambda part: one(part)[1:], parts)
    outputs = [_joined(x, length) for x in outputs]
  return tuple(outputs), (hidden, weights, tokens, temperature, products)


def _backward(head, saved, gradients):
  hidden, weights, tokens, temperature, products = saved
  columns, length = head.columns(weights, hidden.dtype), tokens.shape[2]
  # A sum of its own on every device, so that they are added up once, at the end.
  layout = head.model.layout
  shards = layout.parts(BATCH) if layout else 1
  shards = shards if len(hidden) % shards == 0 else 1

  def of_devices(x: Array) -> Array:
    return x.reshape(shards, -1, x.shape[-1])

  def add(total: Array, part: tuple) -> tuple[Array, Array]:
    hidden, tokens, gradients, products = part
    if products is None:
      products = head.products(hidden, columns)
    _, back = jax.vjp(lambda x: head.outputs(x, tokens, temperature), products)
    (of_products,) = back(gradients)
    of_products = constrain(layout, of_products, BATCH, None, None, "vocab")
    of_hidden = jnp.einsum(
      "amtv,ev->amte", of_products, columns, preferred_element_type=jnp.float32
    )
    of_columns = jnp.einsum(
      "sre,srv->sev",
      of_devices(hidden),
      of_devices(of_products),
      preferred_element_type=jnp.float32,
    )
    total = constrain(layout, total + of_columns, BATCH, None, "vocab")
    return total, constrain(layout, of_hidden.astype(hidden.dtype), BATCH)

  zero = jnp.zeros((shards, *columns.shape))
  zero = constrain(layout, zero, BATCH, None, "vocab")
  if products is not None:
    total, of_hidden = add(zero, (hidden, tokens, gradients, products))
  else:
    parts = jax.tree.map(head.cut, (hidden, tokens, gradients))
    total, of_hidden = jax.lax.scan(add, zero, (*parts, None))
    of_hidden = _joined(of_hidden, length)
  of_weights = jnp.sum(total, axis=0)[:, : weights.shape[1]]
  return of_hidden, of_weights.astype(weights.dtype), None, None


_token_logp.defvjp(_forward, _backward)
