"""Logits of completions, all at once."""

import functools

import jax

from pgax.models import completion_features


@functools.partial(jax.jit, static_argnums=0)
def completion_logits(model, params, prompt_tokens, prompt_mask, tokens, token_mask):
  """The logits `[N, G, T, V]` that predict every completion token."""
  hidden, _ = completion_features(
    model, params, prompt_tokens, prompt_mask, tokens, token_mask
  )
  return model.apply(params, hidden, method=model.unembed)
