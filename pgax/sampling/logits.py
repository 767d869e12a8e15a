"""Samples a token from logits: the policy's distribution, and the one sampled from."""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from pgax.ops import logprobs
from pgax.sampling.options import Options
from pgax.types import Array

_BLOCK = 64  # number of tokens that the second of the two draws chooses from


class SampledToken(NamedTuple):
  """One sampled token per completion, with its log-probabilities.

  Attributes:
    token: `[...]` int32.
    logp: `[...]` float32, in nats, under the policy `softmax(logits / temperature)`; in
      greedy decoding under `softmax(logits)`.
    sample_logp: `[...]` float32, in nats, under the distribution sampled from; 0 in greedy
      decoding.
  """

  token: Array
  logp: Array
  sample_logp: Array


def next_token(
  logits: Array, keys: Array, lengths: Array, options: Options
) -> SampledToken:
  """Samples the next token of every completion.

  Args:
    logits: `[..., V]`.
    keys: `[...]` random keys.
    lengths: `[...]` int32, number of tokens that each completion already has.
    options: sampling options, from `options.canonical`.

  Returns:
    A `SampledToken`.

  Example:
    With `top_k=1` the second token is certain; the policy's probability of it is still 0.4.

    >>> logits = jnp.log(jnp.array([[0.2, 0.4, 0.1, 0.3]]))
    >>> options = canonical(Options(eos_ids=jnp.array([0]), top_k=1))
    >>> keys = jax.random.split(jax.random.key(0), 1)
    >>> token, logp, sample_logp = next_token(logits, keys, jnp.array([0]), options)
    >>> print(token, jnp.exp(logp), jnp.exp(sample_logp))
    [1] [0.4] [1.]
  """
  chex.assert_shape([keys, lengths], logits.shape[:-1])
  greedy = options.temperature == 0
  temperature = jnp.where(greedy, 1.0, options.temperature)
  policy = logprobs.log_softmax(logits, temperature)
  too_short = lengths < options.min_tokens
  truncated = (options.top_k > 0) | (options.top_p < 1) | (options.min_p > 0)

  def transformed() -> Array:
    biased = logits if options.logit_bias is None else logits + options.logit_bias
    is_eos = jnp.isin(jnp.arange(logits.shape[-1]), options.eos_ids)
    biased = jnp.where(too_short[..., None] & is_eos, -jnp.inf, biased)
    log_probs = logprobs.log_softmax(biased, temperature)
    return jax.lax.cond(truncated, lambda x: _truncate(x, options), lambda x: x, log_probs)

  if options.logit_bias is not None:
    log_probs = transformed()
  else:
    log_probs = jax.lax.cond(truncated | jnp.any(too_short), transformed, lambda: policy)
  token = jax.lax.cond(
    greedy,
    lambda: jnp.argmax(log_probs, axis=-1).astype(jnp.int32),
    lambda: categorical(keys, log_probs),
  )
  sample_logp = jnp.where(greedy, 0.0, logprobs.token_logp(log_probs, token))
  return SampledToken(token, logprobs.token_logp(policy, token), sample_logp)


def _truncate(log_probs: Array, options: Options) -> Array:
  """Restricts a distribution `[..., V]` to its most likely tokens.

  Equally likely tokens are kept or dropped together, regardless of their ids.
  """

  def keep_above(log_probs: Array, threshold: Array) -> Array:
    return jax.nn.log_softmax(
      jnp.where(log_probs >= threshold[..., None], log_probs, -jnp.inf), axis=-1
    )

  def top_k(x: Array) -> Array:
    return keep_above(x, _threshold(x, jnp.ones_like(x), options.top_k.astype(jnp.float32)))

  def top_p(x: Array) -> Array:
    return keep_above(x, _threshold(x, jnp.exp(x), options.top_p))

  # Each is skipped if it is off: a threshold takes many passes over the vocabulary.
  log_probs = jax.lax.cond(options.top_k > 0, top_k, lambda x: x, log_probs)
  log_probs = jax.lax.cond(options.top_p < 1, top_p, lambda x: x, log_probs)
  return keep_above(log_probs, jnp.max(log_probs, axis=-1) + jnp.log(options.min_p))


def _threshold(x: Array, weights: Array, target: Array) -> Array:
  """Returns the largest value such that entries of at least it weigh `target` or more.

  The value is exact, by bisection over the bits of a float32. That takes 32 sums; a sort
  takes ten times as long on a CPU.

  Args:
    x: `[..., V]` float32.
    weights: `[..., V]` float32, not negative.
    target: positive scalar.

  Returns:
    `[...]` float32; `-inf` if all entries together weigh less.
  """

  def ordered(bits: Array) -> Array:  # is its own inverse
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)

  ranks = ordered(jax.lax.bitcast_convert_type(x, jnp.int32))

  def halve(_: int, bounds: tuple[Array, Array]) -> tuple[Array, Array]:
    low, high = bounds
    middle = (low & high) + ((low ^ high) >> 1)  # the mean, without overflow
    above = ranks >= middle[..., None]
    enough = jnp.sum(jnp.where(above, weights, 0.0), axis=-1) >= target
    return jnp.where(enough, middle, low), jnp.where(enough, high, middle)

  def bound(value: float) -> Array:
    bits = jax.lax.bitcast_convert_type(jnp.full(x.shape[:-1], value), jnp.int32)
    return ordered(bits)

  low, _ = jax.lax.fori_loop(0, 32, halve, (bound(-jnp.inf), bound(jnp.inf)))
  return jax.lax.bitcast_convert_type(ordered(low), jnp.float32)


def categorical(keys: Array, log_probs: Array) -> Array:
  """Samples a token from every distribution, each with its own key.

  A block of tokens is sampled first, then a token of the block, both by inverting the
  cumulative sum. This takes two random numbers per sample, where Gumbel noise takes `V`,
  and the second one resolves probabilities far below the spacing of the first.

  Args:
    keys: `[...]` random keys.
    log_probs: `[..., V]` float32, in nats.

  Returns:
    `[...]` int32; never a token of probability 0.

  Example:
    >>> log_probs = jnp.log(jnp.tile(jnp.array([0.0, 0.75, 0.25]), (4000, 1)))
    >>> tokens = categorical(jax.random.split(jax.random.key(0), 4000), log_probs)
    >>> print(jnp.round(jnp.bincount(tokens, length=3) / 4000, 1))
    [0.  0.8 0.2]
  """
  chex.assert_shape(keys, log_probs.shape[:-1])
  *batch, vocab = log_probs.shape
  padding = [(0, 0)] * len(batch) + [(0, -vocab % _BLOCK)]
  blocks = jnp.pad(jnp.exp(log_probs), padding).reshape(*batch, -1, _BLOCK)
  flat_keys = keys.reshape(-1)
  uniform = jax.vmap(lambda key: jax.random.uniform(key, (2,)))(flat_keys)
  uniform = uniform.reshape(*batch, 2)
  block = _invert(jnp.sum(blocks, axis=-1), uniform[..., 0])
  chosen = jnp.take_along_axis(blocks, block[..., None, None], axis=-2)[..., 0, :]
  return block * _BLOCK + _invert(chosen, uniform[..., 1])


def _invert(weights: Array, uniform: Array) -> Array:
  """Returns the index at which the cumulative sum passes a fraction of the total."""
  cumulative = jnp.cumsum(weights, axis=-1)
  passed = cumulative > (uniform * cumulative[..., -1])[..., None]
  # A parallel cumulative sum may step by a rounding error where the weight is 0.
  passed &= weights > 0
  first, heaviest = jnp.argmax(passed, axis=-1), jnp.argmax(weights, axis=-1)
  return jnp.where(jnp.any(passed, axis=-1), first, heaviest).astype(jnp.int32)
