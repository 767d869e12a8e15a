"""The sampler: prompts read once, completions decoded in one jitted loop.

Completions are drawn in slots, each slot taking the next completion of its queue as soon
as its own has ended. A completion's draws depend on its prompt's key, its number and its
length, so that neither slots nor order play a part in the result.
"""

import functools
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from pgax.models.cache import NEVER, Cache, with_slots
from pgax.models.decoder import Decoder
from pgax.models.scoring import read_prompts
from pgax.sampling.logits import Drawn, next_token
from pgax.sampling.options import Options, canonical
from pgax.types import Array, PyTree, Rollout


class _Output(NamedTuple):
  """What is drawn for the `J` completions of each of `A` lanes."""

  tokens: Array  # [A, J, T], 0 after the end
  logp: Array
  sample_logp: Array
  lengths: Array  # [A, J]
  finished: Array


class _Loop(NamedTuple):
  """What the decoding loop carries, of `A` lanes with `B` slots each."""

  step: Array
  job: Array  # [A, B], the completion in each slot; J or more where the queue has ended
  queued: Array  # [A], the next completion of each lane's queue
  length: Array  # [A, B], number of tokens drawn
  stop_state: Array  # [A, B]
  hidden: Array  # [A, B, E], from which the next token is drawn
  cache: Cache
  output: _Output


def sample(
  model: Decoder,
  params: PyTree,
  prompt_tokens: Array,
  prompt_mask: Array,
  key: Array,
  options: Options,
  *,
  group: int,
  max_tokens: int,
  slots: int = 0,
  lanes: int = 1,
) -> Rollout:
  """Samples `group` completions of every prompt.

  Only shapes are baked in: options are arguments, and changing a number of them traces
  nothing anew. The cache holds every prompt once and one completion a slot.

  Args:
    model: the decoder.
    params: its parameters.
    prompt_tokens: `[N, P]` int32, right-padded.
    prompt_mask: `[N, P]` bool; at least one real token in each row.
    key: random key, a new one for each call; or `[N]` of them, one for each prompt, which
      alone decides its completions.
    options: how to draw.
    group: number of completions of each prompt, `G`.
    max_tokens: limit of a completion's length in tokens, EOS included, `T`.
    slots: number of completions decoded at a time; 0 for all.
    lanes: number of queues that the prompts, in order, are dealt to; one for each device
      that prompts are spread over. Plays no part where all are decoded at a time.

  Returns:
    A `Rollout`.

  Raises:
    ValueError: if there are more slots than completions, or the lanes do not divide the
      prompts and the slots.
  """
  rollout, _ = sample_counted(
    model,
    params,
    prompt_tokens,
    prompt_mask,
    key,
    options,
    group=group,
    max_tokens=max_tokens,
    slots=slots,
    lanes=lanes,
  )
  return rollout


def prompt_keys(key: Array, count: int) -> Array:
  """The keys of `count` prompts that `sample` makes of one: by their numbers in a batch."""
  return jax.vmap(functools.partial(jax.random.fold_in, key))(jnp.arange(count))


def sample_counted(
  model: Decoder,
  params: PyTree,
  prompt_tokens: Array,
  prompt_mask: Array,
  key: Array,
  options: Options,
  *,
  group: int,
  max_tokens: int,
  slots: int = 0,
  lanes: int = 1,
) -> tuple[Rollout, Array]:
  """`sample`, and the number of decoding steps that it took, an int32 scalar."""
  chex.assert_rank([prompt_tokens, prompt_mask, options.eos_ids], [2, 2, 1])
  chex.assert_equal_shape([prompt_tokens, prompt_mask])
  n = len(prompt_tokens)
  if key.ndim == 0:
    key = prompt_keys(key, n)
  chex.assert_shape(key, (n,))
  if not 0 <= slots <= n * group:
    raise ValueError(f"slots is {slots}; it must be 0 to {n * group}, the completions")
  if slots in (0, n * group):
    slots, lanes = n * group, n  # a slot for each: no lane needs a second prompt
  elif lanes < 1 or n % lanes or slots % lanes:
    raise ValueError(
      f"lanes is {lanes}; it must divide the {n} prompts and the {slots} slots"
    )
  return _decode(
    model,
    params,
    prompt_tokens,
    prompt_mask,
    key,
    canonical(options),
    shape=(lanes, slots // lanes),
    group=group,
    max_tokens=max_tokens,
  )


@functools.partial(jax.jit, static_argnames=("model", "shape", "group", "max_tokens"))
def _decode(
  model: Decoder,
  params: PyTree,
  prompt_tokens: Array,
  prompt_mask: Array,
  prompt_keys: Array,
  options: Options,
  *,
  shape: tuple[int, int],
  group: int,
  max_tokens: int,
) -> tuple[Rollout, Array]:
  """`sample_counted` with `shape` lanes and slots of each."""
  n, (lanes, _) = len(prompt_tokens), shape
  jobs = n * group // lanes
  first_hidden, cache = read_prompts(model, params, prompt_tokens, prompt_mask)
  first_hidden = first_hidden.reshape(lanes, n // lanes, -1)
  prompt_lengths = jnp.sum(prompt_mask, axis=-1, dtype=jnp.int32).reshape(lanes, -1)
  numbered = jax.vmap(jax.random.fold_in, in_axes=(None, 0))
  keys = jax.vmap(numbered, in_axes=(0, None))(prompt_keys, jnp.arange(group))
  keys = keys.reshape(lanes, jobs)
  states = 1 if options.stop is None else len(options.stop)

  def prompt_of(job: Array) -> Array:  # an idle slot goes on with the last one
    return jnp.minimum(job // group, n // lanes - 1)

  def unfinished(loop: _Loop) -> Array:
    return jnp.any(loop.job < jobs)

  def decode(loop: _Loop) -> _Loop:
    live, row = loop.job < jobs, prompt_of(loop.job)
    logits = model.apply(params, loop.hidden, method=model.unembed)
    token_keys = jax.vmap(jax.vmap(jax.random.fold_in))(_at(keys, loop.job), loop.length)
    drawn = next_token(logits, token_keys, loop.length, options)
    length = loop.length + 1
    finished = jnp.isin(drawn.token, options.eos_ids)
    stop_state = loop.stop_state
    if options.stop is not None:
      reached = options.stop[stop_state, drawn.token]
      finished |= (reached >= states) & (length >= options.min_tokens)
      stop_state = reached % states
    ended = live & (finished | (length == max_tokens))

    # What has ended makes room, in the order of the slots.
    ahead = jnp.cumsum(ended, axis=1, dtype=jnp.int32)
    job = jnp.where(ended, loop.queued[:, None] + ahead - 1, loop.job)
    positions = _at(prompt_lengths, row) + loop.length
    hidden, cache = model.apply(
      params,
      drawn.token[..., None],
      positions[..., None],
      loop.cache,
      method=model.features,
    )
    return _Loop(
      step=loop.step + 1,
      job=job,
      queued=loop.queued + ahead[:, -1],
      length=jnp.where(ended, 0, length),
      stop_state=jnp.where(ended, 0, stop_state),
      hidden=jnp.where(
        ended[..., None], _at(first_hidden, prompt_of(job)), hidden[:, :, 0]
      ),
      cache=_begin(cache, ended, prompt_of(job), loop.step + 1),
      output=_write(loop.output, loop, drawn, finished),
    )

  start = jnp.broadcast_to(jnp.arange(shape[1]), shape)
  cache = with_slots(cache, *shape, max_tokens)
  none, outputs = jnp.zeros(shape, jnp.int32), (lanes, jobs, max_tokens)
  end = jax.lax.while_loop(
    unfinished,
    decode,
    _Loop(
      step=jnp.int32(0),
      job=start,
      queued=jnp.full(lanes, shape[1]),
      length=none,
      stop_state=none,
      hidden=_at(first_hidden, prompt_of(start)),
      cache=_begin(cache, none == 1, prompt_of(start), jnp.int32(0)),
      output=_Output(
        tokens=jnp.zeros(outputs, jnp.int32),
        logp=jnp.zeros(outputs, jnp.float32),
        sample_logp=jnp.zeros(outputs, jnp.float32),
        lengths=jnp.zeros(outputs[:2], jnp.int32),
        finished=jnp.zeros(outputs[:2], bool),
      ),
    ),
  )
  found = jax.tree.map(lambda x: x.reshape(n, group, *x.shape[2:]), end.output)
  return (
    Rollout(
      prompt_tokens=prompt_tokens,
      prompt_mask=prompt_mask,
      tokens=found.tokens,
      mask=jnp.arange(max_tokens) < found.lengths[..., None],
      logp=found.logp,
      sample_logp=found.sample_logp,
      finished=found.finished,
    ),
    end.step,
  )


def _at(array: Array, index: Array) -> Array:
  """Entries `[A, B, ...]` of `[A, J, ...]` by index `[A, B]`, lane by lane."""
  return jax.vmap(lambda x, i: x[i])(array, index)


def _begin(cache: Cache, ended: Array, rows: Array, step: Array) -> Cache:
  """The cache for the next step, with slots that have ended emptied for another prompt.

  The tokens of a step stand in one place of all slots, whatever the length of each
  completion: places are used in turn, and by the time that one comes round again, what a
  completion of `T` tokens wrote there is no longer its own. Only positions say what is
  seen, so a slot is emptied by them.
  """
  suffix = cache.suffix
  positions = jnp.where(ended[..., None], NEVER, suffix.positions)
  return cache.replace(
    suffix=suffix.replace(positions=positions),
    index=step % positions.shape[-1],
    rows=None if cache.rows is None else rows,
  )


def _write(output: _Output, loop: _Loop, drawn: Drawn, finished: Array) -> _Output:
  """The output with one more token of each slot; an idle one writes nothing."""

  def put(buffer: Array, value: Array) -> Array:
    def lane(buffer: Array, job: Array, length: Array, value: Array) -> Array:
      at = (job, length) if buffer.ndim == 2 else (job,)
      return buffer.at[at].set(value.astype(buffer.dtype), mode="drop")

    return jax.vmap(lane)(buffer, loop.job, loop.length, value)

  return _Output(
    tokens=put(output.tokens, drawn.token),
    logp=put(output.logp, drawn.logp),
    sample_logp=put(output.sample_logp, drawn.sample_logp),
    lengths=put(output.lengths, loop.length + 1),
    finished=put(output.finished, finished),
  )
