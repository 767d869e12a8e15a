"""Forward passes over complete texts: prompts with completions, and packed rows."""

import jax
import jax.numpy as jnp

from pgax.models.cache import NEVER
from pgax.models.decoder import Decoder
from pgax.models.experts import RouterLoad
from pgax.models.heads import ScalarDecoder
from pgax.models.prompts import features_after, read_prompt_states
from pgax.models.routing import read_tokens
from pgax.types import Array, ExpertChoices, PyTree


def completion_features(
  model: Decoder | ScalarDecoder,
  params: PyTree,
  prompt_tokens: Array,
  prompt_mask: Array,
  tokens: Array,
  token_mask: Array,
) -> Array:
  """Computes the hidden states that predict every completion token.

  The prompt is read once and its `G` completions attend to it, exactly as in the sampler.

  Args:
    model: the decoder, with or without a scalar head.
    params: parameters of the model.
    prompt_tokens: `[N, P]` int32.
    prompt_mask: `[N, P]` bool; at least one real token in each row.
    tokens: `[N, G, T]` int32.
    token_mask: `[N, G, T]` bool, true on real tokens.

  Returns:
    `[N, G, T, E]`; entry `t` is the hidden state of the token before `t`.
  """
  return routed_features(model, params, prompt_tokens, prompt_mask, tokens, token_mask)[0]


def routed_features(
  model: Decoder | ScalarDecoder,
  params: PyTree,
  prompt_tokens: Array,
  prompt_mask: Array,
  tokens: Array,
  token_mask: Array,
  experts: ExpertChoices | None = None,
) -> tuple[Array, RouterLoad | None]:
  """Computes `completion_features`, with the experts in and their use out.

  Args:
    model: the decoder, with or without a scalar head.
    params: parameters of the model.
    prompt_tokens: `[N, P]` int32.
    prompt_mask: `[N, P]` bool.
    tokens: `[N, G, T]` int32.
    token_mask: `[N, G, T]` bool.
    experts: experts that compute the tokens; None lets the router choose.

  Returns:
    `[N, G, T, E]`, and the use of the experts by prompts, each read once, and completions;
    None for a model without experts.
  """
  states = read_prompt_states(
    model, params, prompt_tokens, prompt_mask, experts.prompt if experts else None
  )
  hidden, load = features_after(
    model,
    params,
    states,
    prompt_mask[:, None],
    None,
    tokens,
    token_mask,
    experts.completion if experts else None,
  )
  return hidden, load and jax.tree.map(jnp.add, states.load, load)


def row_features(
  model: Decoder, params: PyTree, tokens: Array, positions: Array, segments: Array
) -> tuple[Array, RouterLoad | None]:
  """Computes the hidden states that predict every token of rows of texts.

  Args:
    model: the decoder.
    params: parameters of the decoder.
    tokens: `[R, L]` int32.
    positions: `[R, L]` int32, position of each token in its own text.
    segments: `[R, L]` int32, number of each token's text in its row from 1; 0 on padding.

  Returns:
    `[R, L, E]`; entry `t` is the hidden state of the token before `t` in the row, which is
    meaningless at the first token of a text. Also the use of the experts; None for a model
    without experts.
  """
  positions = jnp.where(segments > 0, positions, NEVER)
  groups_of_one = (x[:, None] for x in (tokens, positions, segments))
  tokens, positions, segments = groups_of_one
  hidden, _, routing = read_tokens(model, params, tokens, positions, segments=segments)
  return jnp.roll(hidden[:, 0], 1, axis=1), None if routing is None else routing.load


def completion_logits(
  model: Decoder,
  params: PyTree,
  prompt_tokens: Array,
  prompt_mask: Array,
  tokens: Array,
  token_mask: Array,
) -> Array:
  """Computes the logits that predict every completion token.

  Args:
    model: the decoder.
    params: parameters of the decoder.
    prompt_tokens: `[N, P]` int32.
    prompt_mask: `[N, P]` bool; at least one real token in each row.
    tokens: `[N, G, T]` int32.
    token_mask: `[N, G, T]` bool, true on real tokens.

  Returns:
    `[N, G, T, V]`; entry `t` predicts token `t`.
  """
  hidden = completion_features(
    model, params, prompt_tokens, prompt_mask, tokens, token_mask
  )
  return model.apply(params, hidden, method=model.unembed)


def completion_outputs(
  model: ScalarDecoder,
  params: PyTree,
  prompt_tokens: Array,
  prompt_mask: Array,
  tokens: Array,
  token_mask: Array,
) -> Array:
  """Computes the scalar outputs before every completion token.

  The value `V_t` of a critic is computed from the tokens before `t` alone.

  Args:
    model: decoder with a scalar head.
    params: parameters of the model.
    prompt_tokens: `[N, P]` int32.
    prompt_mask: `[N, P]` bool; at least one real token in each row.
    tokens: `[N, G, T]` int32.
    token_mask: `[N, G, T]` bool, true on real tokens.

  Returns:
    `[N, G, T]` float32.
  """
  hidden = completion_features(
    model, params, prompt_tokens, prompt_mask, tokens, token_mask
  )
  return model.apply(params, hidden, method=model.outputs)
