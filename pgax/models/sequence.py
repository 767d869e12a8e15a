"""Whole sequences to one number each: what a reward model says."""

import jax.numpy as jnp

from pgax.models.heads import ScalarDecoder
from pgax.models.scoring import completion_outputs
from pgax.types import Array, PyTree


def sequence_scores(
  scorer: ScalarDecoder,
  params: PyTree,
  prompt_tokens: Array,
  prompt_mask: Array,
  tokens: Array,
  mask: Array,
) -> Array:
  """The head's output at the last real token of every prompt with its completion.

  That token is the EOS of a completion that has one. The prompt is read once for all of its
  completions.

  Args:
    scorer: a decoder with a scalar head.
    params: its parameters.
    prompt_tokens: `[N, P]` int32.
    prompt_mask: `[N, P]` bool; at least one real token in each row.
    tokens: `[N, G, T]` int32.
    mask: `[N, G, T]` bool, true up to the last real token; where there is none the prompt
      alone is scored.

  Returns:
    `[N, G]` float32.
  """
  room = ((0, 0), (0, 0), (0, 1))  # outputs are those before a token: one more has the last
  outputs = completion_outputs(
    scorer, params, prompt_tokens, prompt_mask, jnp.pad(tokens, room), jnp.pad(mask, room)
  )
  last = jnp.sum(mask, axis=-1, keepdims=True, dtype=jnp.int32)
  return jnp.take_along_axis(outputs, last, axis=-1)[..., 0]
