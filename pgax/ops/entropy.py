"""Entropy of the policy: coefficients that keep it up, and tokens of high entropy."""

import dataclasses
from typing import NamedTuple

import chex
import jax.numpy as jnp

from pgax.ops.masking import select
from pgax.ops.precision import is_concrete
from pgax.types import Array


def top_fraction(entropy: Array, mask: Array, fraction: float) -> Array:
  """Selects the tokens of highest entropy in the whole batch.

  `H_t >= tau`, with `tau` the entropy of the `ceil(fraction * n)`-th of `n` tokens in
  descending order, so that equal entropies are selected together. Source: arXiv 2506.01939,
  which trains on a fifth of the tokens, the "forking" ones.

  Args:
    entropy: `[..., T]` entropies of the policy before each token, nats.
    mask: `[..., T]` bool or 0/1; all axes together are the batch.
    fraction: fraction of tokens to select, above 0 and at most 1.

  Returns:
    `[..., T]` bool, a subset of the mask; the mask itself for a fraction of 1.

  Raises:
    ValueError: if `fraction` is not above 0 and at most 1.

  Example:
    >>> entropies, mask = jnp.array([0.1, 0.9, 0.5, 7.0]), jnp.array([1, 1, 1, 0])
    >>> print(entropy.top_fraction(entropies, mask, fraction=0.5))  # 2 of 3
    [False  True  True False]
  """
  if is_concrete(fraction) and not 0 < fraction <= 1:
    raise ValueError(f"fraction is {fraction}; it must be above 0 and at most 1")
  mask = jnp.asarray(mask, bool)
  chex.assert_equal_shape([entropy, mask])
  if is_concrete(fraction) and fraction == 1:
    return mask
  ranked = jnp.sort(select(entropy, mask, fill=-jnp.inf).ravel(), descending=True)
  # Less a little, so that rounding does not turn a fifth of 5 tokens into 2.
  count = jnp.ceil(fraction * jnp.sum(mask) - 1e-3).astype(jnp.int32)
  return mask & (entropy >= ranked[jnp.maximum(count - 1, 0)])


class AdaptiveState(NamedTuple):
  """State of an `AdaptiveController`.

  Attributes:
    coef: float32 scalar, coefficient to use when the entropy is at or below its target.
    entropy: float32 scalar, entropy of the last batch, nats per token.
  """

  coef: Array
  entropy: Array


@dataclasses.dataclass(frozen=True)
class AdaptiveController:
  """A coefficient of an entropy bonus that keeps the entropy from falling below a target.

  After each batch, `coef <- clip(coef + step * sign(target - entropy), 0, limit)`. The
  coefficient is used while the entropy of the last batch is at most the target, and is 0
  otherwise. Source: Skywork-OR1, arXiv 2505.22312, section 4; the limit is TRL's.

  Attributes:
    target: entropy to keep, nats per token.
    step: change of the coefficient after a batch.
    coef: initial coefficient.
    limit: largest coefficient.
  """

  target: float
  step: float = 0.005
  coef: float = 0.0
  limit: float = 1.0

  def __post_init__(self):
    if not (self.target > 0 and self.step > 0 and 0 <= self.coef <= self.limit):
      raise ValueError(
        f"target is {self.target}, step is {self.step}, coef is {self.coef} and limit is "
        f"{self.limit}; target and step must be positive, and coef from 0 to limit"
      )

  def init(self) -> AdaptiveState:
    """The initial state; the first batch has no bonus, since no entropy is known."""
    return AdaptiveState(jnp.float32(self.coef), jnp.float32(jnp.inf))

  def update(self, state: AdaptiveState, entropy: Array, n: int) -> AdaptiveState:
    """The state after a batch with a mean entropy of `entropy` nats per token."""
    del n
    entropy = jnp.asarray(entropy, jnp.float32)
    coef = state.coef + self.step * jnp.sign(self.target - entropy)
    return AdaptiveState(jnp.clip(coef, 0.0, self.limit), entropy)

  def value(self, state: AdaptiveState) -> Array:
    """The coefficient, a float32 scalar."""
    return jnp.where(state.entropy <= self.target, state.coef, 0.0)
