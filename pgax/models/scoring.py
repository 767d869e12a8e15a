"""Reading prompts and completions: the two calls that sampler and trainer both make."""

import jax.numpy as jnp

from pgax.models.cache import NEVER, Cache, share_prefix, token_positions
from pgax.models.decoder import Decoder
from pgax.models.heads import ScalarDecoder
from pgax.types import Array, PyTree


def read_prompts(
  model: Decoder | ScalarDecoder,
  params: PyTree,
  prompt_tokens: Array,
  prompt_mask: Array,
) -> tuple[Array, Cache]:
  """Reads every prompt once, for all of its completions.

  Args:
    model: the decoder, or the critic.
    params: its parameters.
    prompt_tokens: `[N, P]` int32.
    prompt_mask: `[N, P]` bool; at least one real token in each row.

  Returns:
    Hidden state `[N, 1, 1, E]` of each prompt's last token, and a `Cache` whose prefix is
    the prompt.
  """
  positions = token_positions(prompt_mask)[:, None]
  hidden, cache = model.apply(
    params, prompt_tokens[:, None], positions, method=model.features
  )
  slot = jnp.arange(prompt_mask.shape[-1])
  last = jnp.argmax(jnp.where(prompt_mask, slot, -1), axis=-1)
  hidden = jnp.take_along_axis(hidden, last[:, None, None, None], axis=2)
  return hidden, share_prefix(cache)


def completion_features(
  model: Decoder | ScalarDecoder,
  params: PyTree,
  prompt_tokens: Array,
  prompt_mask: Array,
  tokens: Array,
  mask: Array,
) -> Array:
  """Hidden states from which every completion token was, or would have been, drawn.

  The prompt is read once and its `G` completions attend to it, just as in the sampler.

  Args:
    model: the decoder, or the critic.
    params: its parameters.
    prompt_tokens: `[N, P]` int32.
    prompt_mask: `[N, P]` bool; at least one real token in each row.
    tokens: `[N, G, T]` int32.
    mask: `[N, G, T]` bool.

  Returns:
    `[N, G, T, E]`; entry `t` is that of the token before `t`.
  """
  before, cache = read_prompts(model, params, prompt_tokens, prompt_mask)
  start = jnp.sum(prompt_mask, axis=-1, dtype=jnp.int32)[:, None]
  positions = token_positions(mask, start)
  hidden, _ = model.apply(params, tokens, positions, cache, method=model.features)
  before = jnp.broadcast_to(before, (*hidden.shape[:2], 1, hidden.shape[-1]))
  return jnp.concatenate([before, hidden[:, :, :-1]], axis=2)


def row_features(
  model: Decoder, params: PyTree, tokens: Array, positions: Array, segments: Array
) -> Array:
  """Hidden states before every token of rows that hold one text or several.

  Args:
    model: the decoder.
    params: its parameters.
    tokens: `[R, L]` int32.
    positions: `[R, L]` int32, of each token in its own text.
    segments: `[R, L]` int32, the number of that text in its row from 1 on; 0 for padding.

  Returns:
    `[R, L, E]`; entry `t` is that of the token before `t` in the row, which is of no use
    where a text begins.
  """
  positions = jnp.where(segments > 0, positions, NEVER)
  one = (x[:, None] for x in (tokens, positions, segments))  # groups of one
  tokens, positions, segments = one
  hidden, _ = model.apply(
    params, tokens, positions, segments=segments, method=model.features
  )
  return jnp.roll(hidden[:, 0], 1, axis=1)


def completion_logits(
  model: Decoder,
  params: PyTree,
  prompt_tokens: Array,
  prompt_mask: Array,
  tokens: Array,
  mask: Array,
) -> Array:
  """Logits from which every completion token was, or would have been, drawn.

  Args:
    model: the decoder.
    params: its parameters.
    prompt_tokens: `[N, P]` int32.
    prompt_mask: `[N, P]` bool; at least one real token in each row.
    tokens: `[N, G, T]` int32.
    mask: `[N, G, T]` bool.

  Returns:
    `[N, G, T, V]`; entry `t` is the prediction of token `t`.
  """
  hidden = completion_features(model, params, prompt_tokens, prompt_mask, tokens, mask)
  return model.apply(params, hidden, method=model.unembed)


def completion_outputs(
  critic: ScalarDecoder,
  params: PyTree,
  prompt_tokens: Array,
  prompt_mask: Array,
  tokens: Array,
  mask: Array,
) -> Array:
  """Outputs of the critic's head before every completion token: `V_t` sees no token `t`.

  Args:
    critic: the critic.
    params: its parameters.
    prompt_tokens: `[N, P]` int32.
    prompt_mask: `[N, P]` bool; at least one real token in each row.
    tokens: `[N, G, T]` int32.
    mask: `[N, G, T]` bool.

  Returns:
    `[N, G, T]` float32.
  """
  hidden = completion_features(critic, params, prompt_tokens, prompt_mask, tokens, mask)
  return critic.apply(params, hidden, method=critic.outputs)
