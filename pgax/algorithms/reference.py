"""Detects surrogates that read the log-probabilities of the reference policy."""

import functools

import jax
import jax.numpy as jnp

from pgax.types import Batch, SurrogateFn

_PROMPTS, _GROUP, _LENGTH = 2, 2, 3


def reads_reference(surrogate: SurrogateFn) -> bool:
  """Returns whether a surrogate needs `batch.ref_logp`.

  It is traced on a tiny batch without a reference. A surrogate that fails for any other
  reason counts as one that reads it: its error is then raised where it is used.

  Args:
    surrogate: the surrogate, hashable or not.

  Returns:
    True if the surrogate needs the reference.
  """
  try:
    return _reads_reference_cached(surrogate)
  except TypeError:  # not hashable; errors of tracing are caught in `_reads_reference`
    return _reads_reference(surrogate)


def _reads_reference(surrogate: SurrogateFn) -> bool:
  logp, batch = _tiny_batch()
  try:
    jax.eval_shape(lambda logp, batch: tuple(surrogate(logp, batch)), logp, batch)
  except Exception:  # a surrogate made elsewhere may fail on None in any way
    return True
  return False


_reads_reference_cached = functools.lru_cache(maxsize=256)(_reads_reference)


def _tiny_batch() -> tuple[jax.ShapeDtypeStruct, Batch]:
  """Shapes of log-probabilities, and of a batch with everything but a reference."""
  prompt, group = (_PROMPTS, _LENGTH), (_PROMPTS, _GROUP)
  completion = (*group, _LENGTH)
  floats = jax.ShapeDtypeStruct(completion, jnp.float32)
  bools = jax.ShapeDtypeStruct(completion, jnp.bool_)
  batch = Batch(
    prompt_tokens=jax.ShapeDtypeStruct(prompt, jnp.int32),
    prompt_mask=jax.ShapeDtypeStruct(prompt, jnp.bool_),
    tokens=jax.ShapeDtypeStruct(completion, jnp.int32),
    token_mask=bools,
    loss_mask=bools,
    rewards=jax.ShapeDtypeStruct(group, jnp.float32),
    valid=jax.ShapeDtypeStruct(group, jnp.bool_),
    advantages=floats,
    weights=floats,
    old_logp=floats,
    frozen_logp={},
    sampler_weights=floats,
    nll_weights=floats,
    old_values=floats,
    targets=floats,
    rollout_logp=floats,
  )
  return floats, batch
