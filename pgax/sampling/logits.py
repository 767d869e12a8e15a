"""From logits to a token: the policy's distribution, and the one that is drawn from."""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from pgax.ops import logprobs
from pgax.sampling.options import Options
from pgax.types import Array

_BLOCK = 64  # tokens that are told apart in the second of the two draws


class Drawn(NamedTuple):
  """A token of every completion, and how likely it was.

  Attributes:
    token: `[...]` int32.
    logp: `[...]` float32, nats, under the policy `softmax(logits / temperature)`; under
      `softmax(logits)` when greedy, which has no policy of its own.
    sample_logp: `[...]` float32, nats, under the distribution drawn from; 0 when greedy.
  """

  token: Array
  logp: Array
  sample_logp: Array


def next_token(logits: Array, keys: Array, lengths: Array, options: Options) -> Drawn:
  """Draws a token of every completion.

  Args:
    logits: `[..., V]`.
    keys: `[...]` random keys.
    lengths: `[...]` int32, number of tokens that each completion has.
    options: how to draw.

  Returns:
    `Drawn`.
  """
  chex.assert_shape([keys, lengths], logits.shape[:-1])
  greedy = options.temperature == 0
  temperature = jnp.where(greedy, 1.0, options.temperature)
  policy = logprobs.log_softmax(logits, temperature)
  early = lengths < options.min_tokens
  truncated = (options.top_k > 0) | (options.top_p < 1) | (options.min_p > 0)

  def changed() -> Array:
    allowed = logits if options.logit_bias is None else logits + options.logit_bias
    ends = jnp.isin(jnp.arange(logits.shape[-1]), options.eos_ids)
    allowed = jnp.where(early[..., None] & ends, -jnp.inf, allowed)
    log_probs = logprobs.log_softmax(allowed, temperature)
    return jax.lax.cond(truncated, lambda x: _truncate(x, options), lambda x: x, log_probs)

  if options.logit_bias is not None:
    log_probs = changed()
  else:
    log_probs = jax.lax.cond(truncated | jnp.any(early), changed, lambda: policy)
  token = jax.lax.cond(
    greedy,
    lambda: jnp.argmax(log_probs, axis=-1).astype(jnp.int32),
    lambda: categorical(keys, log_probs),
  )
  sample_logp = jnp.where(greedy, 0.0, logprobs.token_logp(log_probs, token))
  return Drawn(token, logprobs.token_logp(policy, token), sample_logp)


def _truncate(log_probs: Array, options: Options) -> Array:
  """Log-probabilities `[..., V]` with only the likeliest tokens left.

  Tokens that are equally likely stay or go together, so that no order of ids matters.
  """

  def keep(log_probs: Array, threshold: Array) -> Array:
    return jax.nn.log_softmax(
      jnp.where(log_probs >= threshold[..., None], log_probs, -jnp.inf), axis=-1
    )

  def top_k(x: Array) -> Array:
    return keep(x, _threshold(x, jnp.ones_like(x), options.top_k.astype(jnp.float32)))

  def top_p(x: Array) -> Array:
    return keep(x, _threshold(x, jnp.exp(x), options.top_p))

  # Each is skipped where it is off: a threshold takes many passes over the vocabulary.
  log_probs = jax.lax.cond(options.top_k > 0, top_k, lambda x: x, log_probs)
  log_probs = jax.lax.cond(options.top_p < 1, top_p, lambda x: x, log_probs)
  return keep(log_probs, jnp.max(log_probs, axis=-1) + jnp.log(options.min_p))


def _threshold(x: Array, weights: Array, target: Array) -> Array:
  """The largest value for which entries of at least that value weigh `target` or more.

  Found exactly, by bisection of the bits of a float32: 32 sums instead of a sort, which
  takes ten times as long on a CPU.

  Args:
    x: `[..., V]` float32.
    weights: `[..., V]` float32, not negative.
    target: positive scalar.

  Returns:
    `[...]` float32; `-inf` if all together weigh less.
  """

  def ordered(bits: Array) -> Array:  # its own inverse
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)

  ranks = ordered(jax.lax.bitcast_convert_type(x, jnp.int32))

  def halve(_: int, bounds: tuple[Array, Array]) -> tuple[Array, Array]:
    low, high = bounds
    middle = (low & high) + ((low ^ high) >> 1)  # their mean, without an overflow
    above = ranks >= middle[..., None]
    enough = jnp.sum(jnp.where(above, weights, 0.0), axis=-1) >= target
    return jnp.where(enough, middle, low), jnp.where(enough, high, middle)

  def bound(value: float) -> Array:
    bits = jax.lax.bitcast_convert_type(jnp.full(x.shape[:-1], value), jnp.int32)
    return ordered(bits)

  low, _ = jax.lax.fori_loop(0, 32, halve, (bound(-jnp.inf), bound(jnp.inf)))
  return jax.lax.bitcast_convert_type(ordered(low), jnp.float32)


def categorical(keys: Array, log_probs: Array) -> Array:
  """Draws a token of every distribution, each by its own key.

  First a block of tokens is drawn, then a token of the block, each by inverting the
  cumulative sum. This takes two random numbers a token where Gumbel noise takes `V`, and
  the second draw resolves probabilities far below the spacing of the first.

  Args:
    keys: `[...]` random keys.
    log_probs: `[..., V]` float32, nats.

  Returns:
    `[...]` int32; never a token of probability 0.
  """
  chex.assert_shape(keys, log_probs.shape[:-1])
  *batch, vocab = log_probs.shape
  room = [(0, 0)] * len(batch) + [(0, -vocab % _BLOCK)]
  blocks = jnp.pad(jnp.exp(log_probs), room).reshape(*batch, -1, _BLOCK)
  flat_keys = keys.reshape(-1)
  uniform = jax.vmap(lambda key: jax.random.uniform(key, (2,)))(flat_keys)
  uniform = uniform.reshape(*batch, 2)
  block = _invert(jnp.sum(blocks, axis=-1), uniform[..., 0])
  chosen = jnp.take_along_axis(blocks, block[..., None, None], axis=-2)[..., 0, :]
  return block * _BLOCK + _invert(chosen, uniform[..., 1])


def _invert(weights: Array, uniform: Array) -> Array:
  """The index at which the cumulative sum of weights passes a part of the whole."""
  cumulative = jnp.cumsum(weights, axis=-1)
  passed = cumulative > (uniform * cumulative[..., -1])[..., None]
  # A cumulative sum in parts may step by a rounding error where the weight is 0.
  passed &= weights > 0
  first, heaviest = jnp.argmax(passed, axis=-1), jnp.argmax(weights, axis=-1)
  return jnp.where(jnp.any(passed, axis=-1), first, heaviest).astype(jnp.int32)
