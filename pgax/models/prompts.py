"""Prompts, which are read once, and the completions that are read after them."""

from typing import NamedTuple

import jax.numpy as jnp

from pgax.models.cache import Cache, KeyValues, share_prefix, take_rows, token_positions
from pgax.models.decoder import Decoder, Output
from pgax.models.experts import RouterLoad
from pgax.models.heads import ScalarDecoder
from pgax.types import Array, PyTree


class PromptStates(NamedTuple):
  """The part of prompts that completions depend on, besides positions.

  The `N` prompts may be divided into `A` lanes of `R` prompts, in order.

  Attributes:
    hidden: `[A, R, E]`, hidden states of the last tokens, which predict the first ones.
    keys: `[layers, A, R, K, P, D]`.
    values: `[layers, A, R, K, P, D]`.
  """

  hidden: Array
  keys: Array
  values: Array

  def in_lanes(self, lanes: int) -> "PromptStates":
    """Divides prompts into lanes, in order."""

    def divide(x: Array, axis: int) -> Array:
      return x.reshape(*x.shape[:axis], lanes, -1, *x.shape[axis + 2 :])

    return PromptStates(
      divide(self.hidden, 0), divide(self.keys, 1), divide(self.values, 1)
    )


class CompletionTokens(NamedTuple):
  """Completions of the prompts in `A` lanes, as a forward pass reads them.

  Attributes:
    tokens: `[A, M, T]` int32.
    mask: `[A, M, T]` bool, true on real tokens.
    prompt_mask: `[A, R, P]` bool, mask of the prompts of each lane.
    prompts: `[A, M]` int32, index of each completion's prompt in its lane; None if a lane
      has one prompt, which is then the same array for all its completions.
    experts: `[A, M, T, layers, k]`, experts that compute the tokens; None lets the router
      choose.
  """

  tokens: Array
  mask: Array
  prompt_mask: Array
  prompts: Array | None = None
  experts: Array | None = None


def read_prompts(
  model: Decoder | ScalarDecoder,
  params: PyTree,
  tokens: Array,
  mask: Array,
  experts: Array | None = None,
) -> Output:
  """Reads every prompt once, for all its completions.

  Args:
    model: the decoder, with or without a scalar head.
    params: parameters of the model.
    tokens: `[N, P]` int32.
    mask: `[N, P]` bool; at least one real token in each row.
    experts: `[N, P, layers, k]`, experts that compute the tokens; None lets the router
      choose.

  Returns:
    An `Output` whose hidden states `[N, 1, 1, E]` are those of each prompt's last token,
    whose cache has the prompts as prefix, and whose routing is of `[N, 1, P]` tokens.
  """
  output = model.apply(
    params,
    tokens[:, None],
    token_positions(mask)[:, None],
    experts=None if experts is None else experts[:, None],
    method=model.features,
  )
  last = jnp.argmax(jnp.where(mask, jnp.arange(mask.shape[-1]), -1), axis=-1)
  hidden = jnp.take_along_axis(output.hidden, last[:, None, None, None], axis=2)
  return output.replace(hidden=hidden, cache=share_prefix(output.cache))


def prompt_states(prompts: Output) -> PromptStates:
  """Makes the `PromptStates` of the output of `read_prompts`, with a lane per prompt."""
  prefix = prompts.cache.prefix
  return PromptStates(prompts.hidden[:, 0], prefix.keys, prefix.values)


def read_completions(
  model: Decoder | ScalarDecoder,
  params: PyTree,
  states: PromptStates,
  completions: CompletionTokens,
) -> tuple[Array, RouterLoad | None]:
  """Computes the hidden states that predict every token of completions of read prompts.

  Args:
    model: the decoder, with or without a scalar head.
    params: parameters of the model.
    states: states of the prompts, in `A` lanes of `R`.
    completions: completions `[A, M, T]`.

  Returns:
    `[A, M, T, E]`; entry `t` is the hidden state of the token before `t`. Also the use of
    the experts by completions; None for a model without experts.
  """
  tokens, mask, prompt_mask, prompts, experts = completions
  starts = take_rows(jnp.sum(prompt_mask, axis=-1, dtype=jnp.int32), prompts)
  prefix = KeyValues(states.keys, states.values, token_positions(prompt_mask))
  output = model.apply(
    params,
    tokens,
    token_positions(mask, starts),
    Cache(prefix, None, jnp.int32(0), prompts),
    experts=experts,
    method=model.features,
  )
  hidden, before = output.hidden, take_rows(states.hidden, prompts)[:, :, None]
  before = jnp.broadcast_to(before, (*hidden.shape[:2], 1, hidden.shape[-1]))
  hidden = jnp.concatenate([before, hidden[:, :, :-1]], axis=2)
  return hidden, None if output.routing is None else output.routing.load
