"""The sampler: prompts are prefilled once, completions are decoded in one jitted loop.

Random draws depend on the prompt's key, the completion's index in the group and its length,
so slots and their order do not change the samples; see `loop`.
"""

import functools

import chex
import jax
import jax.numpy as jnp

from pgax.models.config import DecoderConfig
from pgax.models.decoder import Decoder
from pgax.models.parameters import cast_matrices, unroll
from pgax.models.scoring import read_routed_prompts
from pgax.sampling.loop import DecodeInputs, decode_step, has_unfinished, start_decoding
from pgax.sampling.options import Options, canonical
from pgax.types import Array, ExpertChoices, PyTree, Rollout

_MOST_LAYERS = 32  # that are decoded one by one; more would take long to compile
_MOST_COPIED = 2**28  # bytes of parameters that are copied for it


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
      prompts are sharded over. Ignored if all completions are decoded at a time.
    record_experts: whether to return the experts of each token; ignored without experts.

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
    record_experts=record_experts,
  )
  return rollout


def prompt_keys(key: Array, count: int) -> Array:
  """Derives the keys of `count` prompts from one, as `sample` does."""
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
  record_experts: bool = False,
) -> tuple[Rollout, Array]:
  """Samples as `sample` does, and returns the number of decoding steps as well.

  Args:
    model: decoder of the policy; see `sample` for this and all other arguments.
    params: parameters of the decoder.
    prompt_tokens: `[N, P]` int32.
    prompt_mask: `[N, P]` bool.
    key: random key, or `[N]` keys.
    options: sampling options.
    group: number of completions per prompt.
    max_tokens: maximum number of tokens in a completion.
    slots: number of completions decoded at a time; 0 for all.
    lanes: number of queues.
    record_experts: whether to return the experts of each token.

  Returns:
    A `Rollout`, and the number of steps, an int32 scalar.
  """
  chex.assert_rank([prompt_tokens, prompt_mask, options.eos_ids], [2, 2, 1])
  chex.assert_equal_shape([prompt_tokens, prompt_mask])
  n = len(prompt_tokens)
  key = prompt_keys(key, n) if key.ndim == 0 else key
  chex.assert_shape(key, (n,))
  if not 0 <= slots <= n * group:
    raise ValueError(
      f"slots is {slots}; it must be from 0 to the number of completions, {n * group}"
    )
  if slots in (0, n * group):
    slots, lanes = n * group, n  # one slot per completion, one prompt per lane
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
    record_experts=record_experts and model.config.num_experts > 0,
  )


def decodes_unrolled(config: DecoderConfig) -> bool:
  """Returns whether layers are decoded one by one, with arrays of their own.

  On CPUs a scan over layers copies the cache and the parameters of every layer for every
  token. Without it 64 completions of 128 tokens take 0.65 of the time (4 layers, width 256,
  as many key heads as heads), and one completion also less. It needs one more copy of the
  parameters, so large models are scanned: with SmolLM2-135M, 32 completions of 24 tokens
  take 1.1 of the time and 0.62 of the memory. Elsewhere it has not been measured.
  """
  per_layer = config.embed_dim * (
    2 * config.head_dim * (config.num_heads + config.num_kv_heads)
    + 3 * config.mlp_dim * max(config.num_experts, 1)
  )
  copied = config.num_layers * per_layer * jnp.dtype(config.compute_dtype).itemsize
  few = config.num_layers <= _MOST_LAYERS and copied <= _MOST_COPIED
  return few and jax.default_backend() == "cpu"


@functools.partial(
  jax.jit, static_argnames=("model", "shape", "group", "max_tokens", "record_experts")
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
  group: int,
  max_tokens: int,
  record_experts: bool = False,
) -> tuple[Rollout, Array]:
  """Samples as `sample_counted`, with `shape` lanes and slots per lane."""
  n, lanes = len(prompt_tokens), shape[0]
  # One copy for all tokens, where every token would read and cast what is trained.
  params = cast_matrices(params, model.config.compute_dtype)
  hidden, cache, routing = read_routed_prompts(model, params, prompt_tokens, prompt_mask)
  read = routing.experts[:, 0] if record_experts else None  # [N, P, layers, k]
  prompt_lengths = jnp.sum(prompt_mask, axis=-1, dtype=jnp.int32)
  number = jax.vmap(jax.random.fold_in, in_axes=(None, 0))
  keys = jax.vmap(number, in_axes=(0, None))(prompt_keys, jnp.arange(group))
  unrolled = decodes_unrolled(model.config)
  step_model = Decoder(model.config, unrolled)
  inputs = DecodeInputs(
    params=unroll(params) if unrolled else params,
    options=options,
    keys=keys.reshape(lanes, -1),
    prompt_lengths=prompt_lengths.reshape(lanes, -1),
    prompt_hidden=hidden.reshape(lanes, n // lanes, -1),
  )
  end = jax.lax.while_loop(
    has_unfinished,
    functools.partial(decode_step, step_model, inputs),
    start_decoding(
      inputs,
      cache,
      shape,
      max_tokens,
      jax.ShapeDtypeStruct(read.shape[2:], read.dtype) if record_experts else None,
      unrolled,
    ),
  )
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
  return rollout, end.step
