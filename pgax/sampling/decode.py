"""The sampler: prompts read once, completions decoded in one jitted loop."""

import functools
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from pgax.models.cache import Cache
from pgax.models.decoder import Decoder
from pgax.models.scoring import read_prompts
from pgax.sampling.logits import next_token
from pgax.types import Array, PyTree, Rollout


class _Loop(NamedTuple):
  """What the decoding loop carries: `step` tokens of every completion are written."""

  step: Array
  key: Array
  logits: Array  # [N, G, V] of the token to be drawn
  cache: Cache
  tokens: Array  # [N, G, T]
  mask: Array
  logp: Array
  sample_logp: Array
  finished: Array  # [N, G]


@functools.partial(jax.jit, static_argnames=("model", "group", "max_tokens"))
def sample(
  model: Decoder,
  params: PyTree,
  prompt_tokens: Array,
  prompt_mask: Array,
  key: Array,
  eos_ids: Array,
  temperature: Array | float = 1.0,
  *,
  group: int,
  max_tokens: int,
) -> Rollout:
  """Samples `group` completions of every prompt.

  Decoding stops when every completion has ended, or at `max_tokens`. Only shapes are
  baked in: temperature and EOS ids are arguments, and changing them traces nothing anew.

  Args:
    model: the decoder.
    params: its parameters.
    prompt_tokens: `[N, P]` int32, right-padded.
    prompt_mask: `[N, P]` bool; at least one real token in each row.
    key: random key, a new one for each call.
    eos_ids: `[E]` int32, the tokens that end a completion.
    temperature: of the policy; 0 decodes greedily.
    group: number of completions of each prompt, `G`.
    max_tokens: limit of a completion's length in tokens, EOS included, `T`.

  Returns:
    A `Rollout`.
  """
  chex.assert_rank([prompt_tokens, prompt_mask, eos_ids], [2, 2, 1])
  chex.assert_equal_shape([prompt_tokens, prompt_mask])
  n = prompt_tokens.shape[0]
  shape = (n, group, max_tokens)
  hidden, cache = read_prompts(model, params, prompt_tokens, prompt_mask, group, max_tokens)
  logits = model.apply(params, hidden[:, :, 0], method=model.unembed)
  prompt_lengths = jnp.sum(prompt_mask, axis=-1, dtype=jnp.int32)[:, None]

  def unfinished(loop: _Loop) -> Array:
    return (loop.step < max_tokens) & ~jnp.all(loop.finished)

  def decode(loop: _Loop) -> _Loop:
    key, draw_key = jax.random.split(loop.key)
    drawn = next_token(loop.logits, draw_key, temperature)
    live = ~loop.finished

    def put(buffer, value):
      value = jnp.where(live, value, jnp.zeros((), value.dtype))
      return jax.lax.dynamic_update_index_in_dim(buffer, value, loop.step, axis=2)

    ended = live & jnp.isin(drawn.token, eos_ids)
    positions = jnp.broadcast_to(prompt_lengths + loop.step, (n, group))
    logits, cache = model.apply(
      params, drawn.token[..., None], positions[..., None], loop.cache
    )
    return _Loop(
      step=loop.step + 1,
      key=key,
      logits=logits[:, :, 0],
      cache=cache,
      tokens=put(loop.tokens, drawn.token),
      mask=put(loop.mask, live),
      logp=put(loop.logp, drawn.logp),
      sample_logp=put(loop.sample_logp, drawn.sample_logp),
      finished=loop.finished | ended,
    )

  end = jax.lax.while_loop(
    unfinished,
    decode,
    _Loop(
      step=jnp.int32(0),
      key=key,
      logits=jnp.broadcast_to(logits, (n, group, logits.shape[-1])),
      cache=cache,
      tokens=jnp.zeros(shape, jnp.int32),
      mask=jnp.zeros(shape, bool),
      logp=jnp.zeros(shape, jnp.float32),
      sample_logp=jnp.zeros(shape, jnp.float32),
      finished=jnp.zeros(shape[:2], bool),
    ),
  )
  return Rollout(
    prompt_tokens=prompt_tokens,
    prompt_mask=prompt_mask,
    tokens=end.tokens,
    mask=end.mask,
    logp=end.logp,
    sample_logp=end.sample_logp,
    finished=end.finished,
  )
