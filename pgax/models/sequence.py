"""Scores of sequences by a reward model."""

import jax.numpy as jnp

from pgax.models.heads import ScalarDecoder
from pgax.models.scoring import completion_outputs
from pgax.types import Array, PyTree


def sequence_scores(
  model: ScalarDecoder,
  params: PyTree,
  prompt_tokens: Array,
  prompt_mask: Array,
  tokens: Array,
  token_mask: Array,
) -> Array:
  """Scores sequences by the scalar output at their last real token.

  If a completion ends by EOS, that token is the EOS. Each prompt is read once for all its
  completions.

  Args:
    model: decoder with a scalar head.
    params: parameters of the model.
    prompt_tokens: `[N, P]` int32.
    prompt_mask: `[N, P]` bool; at least one real token in each row.
    tokens: `[N, G, T]` int32.
    token_mask: `[N, G, T]` bool, true up to the last real token. An empty completion gets
      the score of its prompt.

  Returns:
    `[N, G]` float32.
  """
  # Outputs are those before each token: the last token's needs one more token.
  widths = ((0, 0), (0, 0), (0, 1))
  tokens, padded_mask = jnp.pad(tokens, widths), jnp.pad(token_mask, widths)
  outputs = completion_outputs(
    model, params, prompt_tokens, prompt_mask, tokens, padded_mask
  )
  last = jnp.sum(token_mask, axis=-1, keepdims=True, dtype=jnp.int32)
  return jnp.take_along_axis(outputs, last, axis=-1)[..., 0]
