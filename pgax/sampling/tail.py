"""The tail of decoding: the last completions go on in fewer slots.

Lengths differ, so most slots are idle long before the longest completion ends. When few are
left, a quarter of the slots takes them, and decoding goes on with these slots alone.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from pgax.models.cache import Cache, KeyValues, narrow
from pgax.sampling.loop import Completions, DecodeInputs, DecodeState
from pgax.types import Array, PyTree

# For geometric lengths with 8 completions a slot, the work is 1.13 of the ideal with one
# such step, 1.33 without and 1.05 with three (simulated, 64 slots).
_PART = 4
# With fewer slots or tokens there is little to save for a second compiled loop; these two
# are a guess, not measured.
_LEAST_SLOTS, _LEAST_TOKENS = 16, 64


def tail_width(slots: int, max_tokens: int) -> int:
  """Returns how many of a lane's slots are left in the tail; 0 for no tail.

  Args:
    slots: number of slots of a lane.
    max_tokens: maximum number of tokens in a completion.
  """
  worth = slots >= _LEAST_SLOTS and max_tokens >= _LEAST_TOKENS
  return slots // _PART if worth else 0


def has_more_than(state: DecodeState, lanes: int, width: int) -> Array:
  """Returns whether any lane has more unfinished completions than its tail has slots.

  Args:
    state: state of the decoding loop.
    lanes: number of lanes of the tail; must divide that of the state.
    width: number of slots of a lane in the tail.

  Returns:
    A bool scalar.
  """
  unfinished = state.job < state.output.lengths.shape[1]
  return jnp.any(jnp.sum(unfinished.reshape(lanes, -1), axis=-1) > width)


def shrink(
  inputs: DecodeInputs, state: DecodeState, lanes: int, width: int
) -> tuple[DecodeInputs, DecodeState]:
  """Moves the unfinished completions, none of which is queued, to fewer slots.

  Every slot then has its prompt's keys to itself, so that groups need not stay together.

  Args:
    inputs: inputs of the loop.
    state: state with at most `width` unfinished completions in each of the new lanes.
    lanes: number of lanes of the tail; must divide that of the state.
    width: number of slots of a lane in the tail.

  Returns:
    Inputs and state of the tail, with the completions in the same order.
  """
  merged = len(state.job) // lanes  # lanes that become one

  def merge(x: Array) -> Array:
    return x.reshape(lanes, -1, *x.shape[2:])

  jobs = state.output.lengths.shape[1]
  idle = merge(state.job) >= jobs
  order = jnp.argsort(idle, axis=-1, stable=True)[:, :width]
  lane = jnp.arange(len(state.job))[:, None] % merged
  job = jnp.where(idle, merged * jobs, merge(state.job + lane * jobs))
  prompts = inputs.prompt_of(state.job) + lane * inputs.prompt_lengths.shape[1]
  prompts = _take(merge(prompts), order)
  tail_inputs = DecodeInputs(
    params=inputs.params,
    options=inputs.options,
    keys=merge(inputs.keys),
    prompt_lengths=merge(inputs.prompt_lengths),
    prompt_hidden=merge(inputs.prompt_hidden),
  )
  return tail_inputs, DecodeState(
    step=state.step,
    job=_take(job, order),
    queued=jnp.full(lanes, merged * jobs),
    length=_take(merge(state.length), order),
    stop_state=_take(merge(state.stop_state), order),
    hidden=_take(merge(state.hidden), order),
    cache=_tail_cache(state.cache, state.job.shape, prompts, order),
    output=Completions(*(x if x is None else merge(x) for x in state.output)),
  )


def _tail_cache(
  cache: Cache, shape: tuple[int, int], prompts: Array, order: Array
) -> Cache:
  """A cache with the prefix and the suffix of the chosen slots alone."""
  lanes = len(order)

  def take(x: Array, index: Array) -> Array:  # [A, R or B, ...]
    return _take(x.reshape(lanes, -1, *x.shape[2:]), index)

  def prefix(x: Array) -> Array:
    return take(x, prompts)

  def suffix(x: Array) -> Array:
    return take(x, order)

  def whole_suffix(x: Array) -> Array:  # of a layer of its own, which is narrow
    heads, size = cache.prefix.keys[0].shape[2], x.shape[-1]
    return narrow(suffix(x.reshape(*shape, heads, -1, size)))

  def of_layers(layers: PyTree, unrolled: Callable, stacked: Callable) -> PyTree:
    return tuple(map(unrolled, layers)) if is_unrolled else jax.vmap(stacked)(layers)

  is_unrolled = isinstance(cache.prefix.keys, tuple)
  return cache.replace(
    prefix=KeyValues(
      of_layers(cache.prefix.keys, prefix, prefix),
      of_layers(cache.prefix.values, prefix, prefix),
      prefix(cache.prefix.positions),
    ),
    suffix=KeyValues(
      of_layers(cache.suffix.keys, whole_suffix, suffix),
      of_layers(cache.suffix.values, whole_suffix, suffix),
      suffix(cache.suffix.positions),
    ),
    prefix_rows=None,
  )


def _take(x: Array, index: Array) -> Array:
  """Takes entries `[A, W, ...]` of `[A, B, ...]` by index `[A, W]`, lane by lane."""
  return jax.vmap(lambda row, i: row[i])(x, index)
