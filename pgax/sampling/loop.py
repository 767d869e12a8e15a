"""The decoding loop: its state, and the step that decodes one token in every slot.

Completions are decoded in slots. When the completion in a slot ends, the slot takes the
next one of its lane's queue.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from pgax.models.cache import NEVER, Cache, unroll, with_slots
from pgax.models.decoder import Decoder
from pgax.models.experts import Routing
from pgax.sampling.logits import SampledToken, next_token
from pgax.sampling.options import Options
from pgax.types import Array, PyTree


class Completions(NamedTuple):
  """The `J` completions of each of `A` lanes, up to the last decoded token."""

  tokens: Array  # [A, J, T], 0 after the end
  logp: Array
  sample_logp: Array
  lengths: Array  # [A, J]
  finished: Array
  experts: Array | None = None  # [A, J, T, layers, k], if they are recorded


class DecodeInputs(NamedTuple):
  """The inputs of the decoding loop that are the same in all steps."""

  params: PyTree
  options: Options
  keys: Array  # [A, J], random key of each completion
  prompt_lengths: Array  # [A, N / A]
  prompt_hidden: Array  # [A, N / A, E], hidden states that predict the first tokens

  def prompt_of(self, job: Array) -> Array:
    """Returns the index of a completion's prompt in its lane; idle slots get the last."""
    prompts = self.prompt_lengths.shape[1]
    group = self.keys.shape[1] // prompts
    return jnp.minimum(job // group, prompts - 1)


class DecodeState(NamedTuple):
  """The state of the decoding loop, for `A` lanes with `B` slots each."""

  step: Array
  job: Array  # [A, B], completion in each slot; at least J if the slot is idle
  queued: Array  # [A], next completion of each lane's queue
  length: Array  # [A, B], number of tokens decoded
  stop_state: Array  # [A, B]
  hidden: Array  # [A, B, E], hidden states that predict the next tokens
  cache: Cache
  output: Completions


def start_decoding(
  inputs: DecodeInputs,
  cache: Cache,
  shape: tuple[int, int],
  max_tokens: int,
  experts: jax.ShapeDtypeStruct | None = None,
  unrolled: bool = False,
) -> DecodeState:
  """Puts the first completions of each lane's queue into its slots.

  Args:
    inputs: inputs that are the same in all steps.
    cache: cache with the prompts as its prefix.
    shape: number of lanes, and number of slots per lane.
    max_tokens: maximum number of tokens in a completion.
    experts: shape `[layers, k]` and dtype of a token's experts; None to not record them.
    unrolled: whether every layer has keys and values of its own.

  Returns:
    The state before the first token.
  """
  lanes, width = shape
  job = jnp.broadcast_to(jnp.arange(width), shape)
  zeros, outputs = jnp.zeros(shape, jnp.int32), (*inputs.keys.shape, max_tokens)
  cache = with_slots(cache, lanes, width, max_tokens)
  cache = unroll(cache) if unrolled else cache
  return DecodeState(
    step=jnp.int32(0),
    job=job,
    queued=jnp.full(lanes, width),
    length=zeros,
    stop_state=zeros,
    hidden=_at(inputs.prompt_hidden, inputs.prompt_of(job)),
    cache=_reset_slots(cache, zeros == 1, inputs.prompt_of(job), jnp.int32(0)),
    output=Completions(
      tokens=jnp.zeros(outputs, jnp.int32),
      logp=jnp.zeros(outputs, jnp.float32),
      sample_logp=jnp.zeros(outputs, jnp.float32),
      lengths=jnp.zeros(outputs[:2], jnp.int32),
      finished=jnp.zeros(outputs[:2], bool),
      experts=experts and jnp.zeros((*outputs, *experts.shape), experts.dtype),
    ),
  )


def has_unfinished(state: DecodeState) -> Array:
  """Returns whether any slot has an unfinished completion, a bool scalar."""
  jobs = state.output.lengths.shape[1]
  return jnp.any(state.job < jobs)


def decode_step(model: Decoder, inputs: DecodeInputs, state: DecodeState) -> DecodeState:
  """Decodes one token in every slot; ended completions are replaced by queued ones.

  Args:
    model: decoder of the policy.
    inputs: inputs that are the same in all steps.
    state: state before the token.

  Returns:
    The state after the token.
  """
  jobs, max_tokens = state.output.tokens.shape[1:]
  sampled, finished, stop_state = _sample_token(model, inputs, state)
  length = state.length + 1
  ended = (state.job < jobs) & (finished | (length == max_tokens))

  # Queued completions take the free slots in order.
  taken = jnp.cumsum(ended, axis=1, dtype=jnp.int32)
  job = jnp.where(ended, state.queued[:, None] + taken - 1, state.job)
  positions = _at(inputs.prompt_lengths, inputs.prompt_of(state.job)) + state.length
  read = model.apply(
    inputs.params,
    sampled.token[..., None],
    positions[..., None],
    state.cache,
    method=model.features,
  )
  prompts = inputs.prompt_of(job)
  first_hidden = _at(inputs.prompt_hidden, prompts)
  return DecodeState(
    step=state.step + 1,
    job=job,
    queued=state.queued + taken[:, -1],
    length=jnp.where(ended, 0, length),
    stop_state=jnp.where(ended, 0, stop_state),
    hidden=jnp.where(ended[..., None], first_hidden, read.hidden[:, :, 0]),
    cache=_reset_slots(read.cache, ended, prompts, state.step + 1),
    output=_write(state, sampled, finished, read.routing),
  )


def _sample_token(
  model: Decoder, inputs: DecodeInputs, state: DecodeState
) -> tuple[SampledToken, Array, Array]:
  """Samples a token in every slot; also returns which ones finish, and the stop state."""
  options = inputs.options
  logits = model.apply(inputs.params, state.hidden, method=model.unembed)
  keys = jax.vmap(jax.vmap(jax.random.fold_in))(_at(inputs.keys, state.job), state.length)
  sampled = next_token(logits, keys, state.length, options)
  finished, stop_state = jnp.isin(sampled.token, options.eos_ids), state.stop_state
  if options.stop is not None:
    states = len(options.stop)
    reached = options.stop[stop_state, sampled.token]
    finished |= (reached >= states) & (state.length + 1 >= options.min_tokens)
    stop_state = reached % states
  return sampled, finished, stop_state


def _at(array: Array, index: Array) -> Array:
  """Takes entries `[A, B, ...]` of `[A, J, ...]` by index `[A, B]`, lane by lane."""
  return jax.vmap(lambda x, i: x[i])(array, index)


def _reset_slots(cache: Cache, ended: Array, prompts: Array, step: Array) -> Cache:
  """Empties the slots whose completions have ended, for the next completions.

  All slots write the tokens of a step to the same index of the suffix, regardless of
  the length of each completion. The suffix is a ring buffer of `T` indices, so a completion
  of at most `T` tokens never overwrites its own. Positions alone decide what is attended
  to, so resetting them empties a slot.
  """
  suffix = cache.suffix
  positions = jnp.where(ended[..., None], NEVER, suffix.positions)
  return cache.replace(
    suffix=suffix.replace(positions=positions),
    index=step % positions.shape[-1],
    prefix_rows=None if cache.prefix_rows is None else prompts,
  )


def _write(
  state: DecodeState, sampled: SampledToken, finished: Array, routing: Routing | None
) -> Completions:
  """Writes the token of each slot to its completion; idle slots write nothing."""

  def put(buffer: Array, value: Array) -> Array:
    def lane(buffer: Array, job: Array, length: Array, value: Array) -> Array:
      at = (job, length) if buffer.ndim > value.ndim else (job,)
      return buffer.at[at].set(value.astype(buffer.dtype), mode="drop")

    return jax.vmap(lane)(buffer, state.job, state.length, value)

  output, experts = state.output, None
  if output.experts is not None:
    experts = put(output.experts, routing.experts[:, :, 0])
  return Completions(
    tokens=put(output.tokens, sampled.token),
    logp=put(output.logp, sampled.logp),
    sample_logp=put(output.sample_logp, sampled.sample_logp),
    lengths=put(output.lengths, state.length + 1),
    finished=put(output.finished, finished),
    experts=experts,
  )
