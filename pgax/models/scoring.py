"""Forward passes over complete texts: prompts with completions, and packed rows."""

import jax
import jax.numpy as jnp

from pgax.models.cache import NEVER
from pgax.models.decoder import Decoder
from pgax.models.experts import RouterLoad
from pgax.models.heads import ScalarDecoder
from pgax.models.prompts import (
  CompletionTokens,
  PromptStates,
  prompt_states,
  read_completions,
  read_prompts,
)
from pgax.types import Array, ExpertChoices, PyTree


def completion_features(
  model: Decoder | ScalarDecoder,
  params: PyTree,
  prompt_tokens: Array,
  prompt_mask: Array,
  tokens: Array,
  token_mask: Array,
  experts: ExpertChoices | None = None,
) -> tuple[Array, RouterLoad | None]:
  """Computes the hidden states that predict every completion token.

  The prompt is read once and its `G` completions attend to it, exactly as in the sampler.

  Args:
    model: the decoder, with or without a scalar head.
    params: parameters of the model.
    prompt_tokens: `[N, P]` int32.
    prompt_mask: `[N, P]` bool; at least one real token in each row.
    tokens: `[N, G, T]` int32.
    token_mask: `[N, G, T]` bool, true on real tokens.
    experts: experts that compute the tokens; None lets the router choose.

  Returns:
    `[N, G, T, E]`; entry `t` is the hidden state of the token before `t`. Also the use of
    the experts by prompts, each read once, and completions; None for a model without
    experts.
  """
  of_prompts, of_completions = (
    (experts.prompt, experts.completion) if experts else (None,) * 2
  )
  output = read_prompts(model, params, prompt_tokens, prompt_mask, of_prompts)
  completions = CompletionTokens(
    tokens, token_mask, prompt_mask[:, None], experts=of_completions
  )
  hidden, load = read_completions(model, params, prompt_states(output), completions)
  if load is not None:
    load = jax.tree.map(jnp.add, output.routing.load, load)
  return hidden, load


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
    undefined at the first token of a text. Also the use of the experts; None for a model
    without experts.
  """
  positions = jnp.where(segments > 0, positions, NEVER)
  tokens, positions, segments = (x[:, None] for x in (tokens, positions, segments))
  output = model.apply(params, tokens, positions, segments=segments, method=model.features)
  hidden = jnp.roll(output.hidden[:, 0], 1, axis=1)
  return hidden, None if output.routing is None else output.routing.load


def completion_outputs(
  model: ScalarDecoder,
  params: PyTree,
  states: PromptStates,
  completions: CompletionTokens,
  to_end: bool = False,
) -> tuple[Array, Array | None]:
  """Computes the scalar outputs before every token of completions of read prompts.

  The value `V_t` of a critic is computed from the tokens before `t` alone.

  Args:
    model: decoder with a scalar head.
    params: parameters of the model.
    states: states of the prompts.
    completions: completions `[A, M, T]`.
    to_end: whether to compute the output after the last token of each completion as well.

  Returns:
    `[A, M, T]` float32, and with `to_end` `[A, M]` float32; an empty completion has the
    output after its prompt.
  """
  mask = completions.mask
  if to_end:  # one more token, which nothing attends to
    widths = ((0, 0), (0, 0), (0, 1))
    completions = completions._replace(
      tokens=jnp.pad(completions.tokens, widths), mask=jnp.pad(mask, widths)
    )
  hidden, _ = read_completions(model, params, states, completions)
  outputs = model.apply(params, hidden, method=model.outputs)
  if not to_end:
    return outputs, None
  end = jnp.max(jnp.where(mask, jnp.arange(1, outputs.shape[-1]), 0), axis=-1)
  last = jnp.take_along_axis(outputs, end[..., None], axis=-1)[..., 0]
  return outputs[..., :-1], last


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
    token_mask: `[N, G, T]` bool, true on real tokens. An empty completion gets the score of
      its prompt.

  Returns:
    `[N, G]` float32.
  """
  states = prompt_states(read_prompts(model, params, prompt_tokens, prompt_mask))
  completions = CompletionTokens(tokens, token_mask, prompt_mask[:, None])
  return completion_outputs(model, params, states, completions, to_end=True)[1]
