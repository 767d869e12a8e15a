"""The sampler: prompts are prefilled once, completions are decoded in one jitted loop.

Random draws depend on the prompt's key, the completion's index in the group and its length,
so slots and their order do not change the samples; see `loop`.
"""

import functools
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp

from pgax.models.decoder import Decoder
from pgax.models.layout import platform
from pgax.models.parameters import cast_matrices, unroll
from pgax.sampling.loop import (
  DecodeInputs,
  DecodeState,
  decode_step,
  has_unfinished,
  start_decoding,
)
from pgax.sampling.options import Options, canonical
from pgax.sampling.prefill import prefill
from pgax.sampling.tail import has_more_than, shrink, tail_width
from pgax.types import Array, ExpertChoices, PyTree, Rollout

_MOST_LAYERS = 32  # that are decoded one by one; more would take long to compile
_MOST_COPIED = 2**28  # bytes of parameters that are copied for it


class DecodeCounts(NamedTuple):
  """The work of decoding, int32 scalars.

  Attributes:
    steps: number of steps, each of which decodes a token in every slot.
    places: sum over the steps of the number of slots, idle ones included.
  """

  steps: Array
  places: Array


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
  record_experts: bool = False,
  fixed_steps: bool = False,
) -> Rollout:
  """Samples `group` completions of every prompt.

  Only shapes are compiled in; options are arguments, and changing their numbers does not
  retrace. The cache holds every prompt once, and one completion per slot.

  Args:
    model: decoder of the policy.
    params: parameters of the decoder.
    prompt_tokens: `[N, P]` int32, right-padded.
    prompt_mask: `[N, P]` bool; at least one real token in each row.
    key: random key, a new one for each call; or `[N]` keys, one per prompt.
    options: sampling options.
    group: number of completions per prompt, `G`.
    max_tokens: maximum number of tokens in a completion, EOS included, `T`.
    slots: number of completions decoded at a time; 0 for all.
    lanes: number of queues that prompts are divided into, in order; one per device that
      prompts are sharded over.
    record_experts: whether to return the experts of each token; ignored without experts.
    fixed_steps: whether to decode `max_tokens` steps even if all completions have ended.
      The samples are the same; `jax.vmap` copies the cache in every step otherwise.

  Returns:
    A `Rollout`.

  Raises:
    ValueError: if there are more slots than completions, the lanes do not divide the
      prompts and the slots, or slots are reused in a fixed number of steps.
  """
  arguments, static = _arguments(
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
    record_experts=record_experts,
    fixed_steps=fixed_steps,
  )
  return _decode(*arguments, **static)[0]


def prompt_keys(key: Array, count: int) -> Array:
  """Derives the keys of `count` prompts from one, as `sample` does."""
  return jax.vmap(functools.partial(jax.random.fold_in, key))(jnp.arange(count))


def sample_counted(
  model: Decoder, params: PyTree, *arguments: Any, **settings: Any
) -> tuple[Rollout, DecodeCounts]:
  """Samples as `sample` does, and counts the work of decoding as well.

  Args:
    model: decoder of the policy.
    params: parameters of the decoder.
    *arguments: further arguments of `sample`.
    **settings: named arguments of `sample`.

  Returns:
    A `Rollout`, and `DecodeCounts`.
  """
  arguments, static = _arguments(model, params, *arguments, **settings)
  return _decode(*arguments, **static)


def lower_sample(
  model: Decoder, params: PyTree, *arguments: Any, **settings: Any
) -> jax.stages.Lowered:
  """Lowers the program of `sample`, for devices that may not be there.

  Args:
    model: decoder of the policy.
    params: shapes of its parameters, with shardings.
    *arguments: further arguments of `sample`, as shapes; the key is `[N]` keys.
    **settings: named arguments of `sample`.

  Returns:
    The lowered program.
  """
  arguments, static = _arguments(model, params, *arguments, **settings)
  return _decode.lower(*arguments, **static)


def _arguments(
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
  record_experts: bool = False,
  fixed_steps: bool = False,
) -> tuple[tuple, dict[str, Any]]:
  """Checks the arguments of `sample`; returns those of `_decode`, and what is static."""
  chex.assert_rank([prompt_tokens, prompt_mask, options.eos_ids], [2, 2, 1])
  chex.assert_equal_shape([prompt_tokens, prompt_mask])
  n = prompt_tokens.shape[0]
  key = prompt_keys(key, n) if key.ndim == 0 else key
  chex.assert_shape(key, (n,))
  if not 0 <= slots <= n * group:
    raise ValueError(
      f"slots is {slots}; it must be from 0 to the number of completions, {n * group}"
    )
  slots, tail_lanes = slots or n * group, lanes
  if fixed_steps and slots < n * group:
    raise ValueError(
      f"slots is {slots} of {n * group} completions and fixed_steps is True; if slots are "
      "reused, the number of steps is known at the end only"
    )
  if lanes < 1 or n % lanes or slots % lanes:
    raise ValueError(
      f"lanes is {lanes}; it must divide the {n} prompts and the {slots} slots"
    )
  if slots == n * group:
    lanes = n  # one slot per completion, one prompt per lane
  static = {
    "shape": (lanes, slots // lanes),
    "tail_lanes": tail_lanes,
    "group": group,
    "max_tokens": max_tokens,
    "record_experts": record_experts and model.config.num_experts > 0,
    "fixed_steps": fixed_steps,
  }
  return (model, params, prompt_tokens, prompt_mask, key, canonical(options)), static


def decodes_unrolled(model: Decoder) -> bool:
  """Returns whether layers are decoded one by one, with arrays of their own.

  On CPUs a scan over layers copies the cache and the parameters of every layer for every
  token. Without it 64 completions of 128 tokens take 0.65 of the time (4 layers, width 256,
  as many key heads as heads), and one completion also less. It needs one more copy of the
  parameters, so large models are scanned: with SmolLM2-135M, 32 completions of 24 tokens
  take 1.1 of the time and 0.62 of the memory. Elsewhere it has not been measured.
  """
  config = model.config
  per_layer = config.embed_dim * (
    2 * config.head_dim * (config.num_heads + config.num_kv_heads)
    + 3 * config.mlp_dim * max(config.num_experts, 1)
  )
  copied = config.num_layers * per_layer * jnp.dtype(config.compute_dtype).itemsize
  few = config.num_layers <= _MOST_LAYERS and copied <= _MOST_COPIED
  return few and platform(model.layout) == "cpu"


@functools.partial(
  jax.jit,
  static_argnames=(
    *("model", "shape", "tail_lanes", "group", "max_tokens"),
    *("record_experts", "fixed_steps"),
  ),
)
def _decode(
  model: Decoder,
  params: PyTree,
  prompt_tokens: Array,
  prompt_mask: Array,
  prompt_keys: Array,
  options: Options,
  *,
  shape: tuple[int, int],
  tail_lanes: int,
  group: int,
  max_tokens: int,
  record_experts: bool = False,
  fixed_steps: bool = False,
) -> tuple[Rollout, DecodeCounts]:
  """Samples as `sample_counted`, with `shape` lanes and slots per lane."""
  n, lanes = len(prompt_tokens), shape[0]
  # One copy for all tokens, where every token would read and cast what is trained.
  params = cast_matrices(params, model.config.compute_dtype)
  prompts = prefill(model, params, prompt_tokens, prompt_mask)
  read = prompts.routing.experts[:, 0] if record_experts else None
  prompt_lengths = jnp.sum(prompt_mask, axis=-1, dtype=jnp.int32)
  number = jax.vmap(jax.random.fold_in, in_axes=(None, 0))
  keys = jax.vmap(number, in_axes=(0, None))(prompt_keys, jnp.arange(group))
  unrolled = decodes_unrolled(model)
  step_model = Decoder(model.config, unrolled, model.layout)
  inputs = DecodeInputs(
    params=unroll(params) if unrolled else params,
    options=options,
    keys=keys.reshape(lanes, -1),
    prompt_lengths=prompt_lengths.reshape(lanes, -1),
    prompt_hidden=prompts.hidden.reshape(lanes, n // lanes, -1),
  )
  state = start_decoding(
    inputs,
    prompts.cache,
    shape,
    max_tokens,
    jax.ShapeDtypeStruct(read.shape[2:], read.dtype) if record_experts else None,
    unrolled,
  )
  if fixed_steps:  # slots of completions that have ended are idle and write nothing
    step = functools.partial(decode_step, step_model, inputs)
    end = jax.lax.fori_loop(0, max_tokens, lambda _, state: step(state), state)
    places = end.step * end.job.size
  else:
    end, places = _run(step_model, inputs, state, tail_lanes, max_tokens)
  output = jax.tree.map(lambda x: x.reshape(n, group, *x.shape[2:]), end.output)
  mask = jnp.arange(max_tokens) < output.lengths[..., None]
  rollout = Rollout(
    prompt_tokens=prompt_tokens,
    prompt_mask=prompt_mask,
    tokens=output.tokens,
    token_mask=mask,
    action_mask=mask,  # the policy sampled every token
    logp=output.logp,
    sample_logp=output.sample_logp,
    finished=output.finished,
    experts=ExpertChoices(read, output.experts) if record_experts else None,
  )
  return rollout, DecodeCounts(end.step, places)


def _run(
  model: Decoder, inputs: DecodeInputs, state: DecodeState, lanes: int, max_tokens: int
) -> tuple[DecodeState, Array]:
  """Decodes all completions, the last ones in fewer slots; also counts their places."""
  slots = state.job.size
  width = tail_width(slots // lanes, max_tokens)
  step = functools.partial(decode_step, model, inputs)
  if not width:
    end = jax.lax.while_loop(has_unfinished, step, state)
    return end, end.step * slots
  many = functools.partial(has_more_than, lanes=lanes, width=width)
  middle = jax.lax.while_loop(many, step, state)
  tail_inputs, tail = shrink(inputs, middle, lanes, width)
  step = functools.partial(decode_step, model, tail_inputs)
  end = jax.lax.while_loop(has_unfinished, step, tail)
  return end, middle.step * slots + (end.step - middle.step) * lanes * width
