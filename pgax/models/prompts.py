"""Prompts, which are read once, and the completions that are read after them."""

from typing import NamedTuple

import jax.numpy as jnp

from pgax.models.cache import Cache, KeyValues, share_prefix, take_rows, token_positions
from pgax.models.decoder import Decoder
from pgax.models.experts import RouterLoad
from pgax.models.heads import ScalarDecoder
from pgax.models.routing import Routing, read_tokens
from pgax.types import Array, PyTree


def read_prompts(
  model: Decoder | ScalarDecoder,
  params: PyTree,
  prompt_tokens: Array,
  prompt_mask: Array,
) -> tuple[Array, Cache]:
  """Reads every prompt once, for all its completions.

  Args:
    model: the decoder, with or without a scalar head.
    params: parameters of the model.
    prompt_tokens: `[N, P]` int32.
    prompt_mask: `[N, P]` bool; at least one real token in each row.

  Returns:
    Hidden state `[N, 1, 1, E]` of each prompt's last token, and a `Cache` whose prefix is
    the prompt.
  """
  return read_routed_prompts(model, params, prompt_tokens, prompt_mask)[:2]


def read_routed_prompts(
  model: Decoder | ScalarDecoder,
  params: PyTree,
  prompt_tokens: Array,
  prompt_mask: Array,
  experts: Array | None = None,
) -> tuple[Array, Cache, Routing | None]:
  """Reads prompts as `read_prompts` does, with the experts in and out.

  Args:
    model: the decoder, with or without a scalar head.
    params: parameters of the model.
    prompt_tokens: `[N, P]` int32.
    prompt_mask: `[N, P]` bool.
    experts: `[N, P, layers, k]`, experts that compute the tokens; None lets the router
      choose.

  Returns:
    The results of `read_prompts`, and the `Routing` of `[N, 1, P]` tokens; None for a model
    without experts.
  """
  positions = token_positions(prompt_mask)[:, None]
  experts = None if experts is None else experts[:, None]
  hidden, cache, routing = read_tokens(
    model, params, prompt_tokens[:, None], positions, experts=experts
  )
  slot = jnp.arange(prompt_mask.shape[-1])
  last = jnp.argmax(jnp.where(prompt_mask, slot, -1), axis=-1)
  hidden = jnp.take_along_axis(hidden, last[:, None, None, None], axis=2)
  return hidden, share_prefix(cache), routing


class PromptStates(NamedTuple):
  """What completions need of their prompts, besides positions.

  The `N` prompts may be divided into `A` lanes of `R` prompts, in order.

  Attributes:
    hidden: `[A, R, E]`, hidden states of the last tokens, which predict the first ones.
    keys: `[layers, A, R, K, P, D]`.
    values: `[layers, A, R, K, P, D]`.
    load: use of the experts by the prompts; None for a model without experts.
  """

  hidden: Array
  keys: Array
  values: Array
  load: RouterLoad | None

  def in_lanes(self, lanes: int) -> "PromptStates":
    """Divides prompts into lanes, in order."""

    def divide(x: Array, axis: int) -> Array:
      return x.reshape(*x.shape[:axis], lanes, -1, *x.shape[axis + 2 :])

    hidden, keys, values = divide(self.hidden, 0), *(divide(x, 1) for x in self[1:3])
    return PromptStates(hidden, keys, values, self.load)


def read_prompt_states(
  model: Decoder | ScalarDecoder,
  params: PyTree,
  prompt_tokens: Array,
  prompt_mask: Array,
  experts: Array | None = None,
) -> PromptStates:
  """Reads every prompt once, for completions that are read later.

  Args:
    model: the decoder, with or without a scalar head.
    params: parameters of the model.
    prompt_tokens: `[N, P]` int32.
    prompt_mask: `[N, P]` bool; at least one real token in each row.
    experts: see `read_routed_prompts`.

  Returns:
    `PromptStates` of `N` lanes with one prompt each.
  """
  hidden, cache, routing = read_routed_prompts(
    model, params, prompt_tokens, prompt_mask, experts
  )
  prefix = cache.prefix
  return PromptStates(hidden[:, 0], prefix.keys, prefix.values, routing and routing.load)


def features_after(
  model: Decoder | ScalarDecoder,
  params: PyTree,
  states: PromptStates,
  prompt_mask: Array,
  prompts: Array | None,
  tokens: Array,
  token_mask: Array,
  experts: Array | None = None,
) -> tuple[Array, RouterLoad | None]:
  """Computes the hidden states that predict every token of completions of read prompts.

  Args:
    model: the decoder, with or without a scalar head.
    params: parameters of the model.
    states: states of the prompts, in `A` lanes of `R`.
    prompt_mask: `[A, R, P]` bool.
    prompts: `[A, M]` int32, index of each completion's prompt in its lane; None if a lane
      has one prompt, which is then the same array for all its completions.
    tokens: `[A, M, T]` int32.
    token_mask: `[A, M, T]` bool.
    experts: `[A, M, T, layers, k]`, experts that compute the tokens; None lets the router
      choose.

  Returns:
    `[A, M, T, E]`, and the use of the experts by completions; None for a model without
    experts.
  """
  starts = take_rows(jnp.sum(prompt_mask, axis=-1, dtype=jnp.int32), prompts)
  prefix = KeyValues(states.keys, states.values, token_positions(prompt_mask))
  cache = Cache(prefix, None, jnp.int32(0), prompts)
  hidden, _, routing = read_tokens(
    model, params, tokens, token_positions(token_mask, starts), cache, experts=experts
  )
  before = take_rows(states.hidden, prompts)[:, :, None]
  before = jnp.broadcast_to(before, (*hidden.shape[:2], 1, hidden.shape[-1]))
  hidden = jnp.concatenate([before, hidden[:, :, :-1]], axis=2)
  return hidden, routing and routing.load
