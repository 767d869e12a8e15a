"""Per-token estimators of KL(policy || reference), and controllers of its coefficient.

All estimators take log-probabilities (nats) of the sampled tokens, with
`d = ref_logp - logp`. They have the right expectation under samples of the policy; as
terms of a loss their *gradients* estimate different things, which each docstring states.
"""

import dataclasses
import math

import chex
import jax
import jax.numpy as jnp

from pgax.ops.precision import as_float
from pgax.types import Array

# exp(20) = 5e8: far beyond any useful ratio, and its square is still finite in float32.
MAX_LOG_RATIO = 20.0


def _log_ratio(logp: Array, ref_logp: Array) -> Array:
  chex.assert_equal_shape([logp, ref_logp])
  return as_float(ref_logp) - as_float(logp)


def k1(logp: Array, ref_logp: Array) -> Array:
  """k1: the log-ratio itself, unbiased and of either sign.

  `k1 = -d = logp - ref_logp`. On-policy its expected gradient as a loss term is *zero*:
  it is only meaningful in the reward. Source: Schulman 2020, "Approximating KL
  divergence".

  Args:
    logp: `[...]` log-probabilities under the policy, nats.
    ref_logp: `[...]` the same tokens under the reference, nats.

  Returns:
    `[...]` float32, nats.

  Example:
    >>> logp, ref_logp = jnp.log(jnp.array([[0.5, 0.25], [0.25, 0.5]]))
    >>> print(kl.k1(logp, ref_logp))
    [ 0.6931 -0.6931]
  """
  return -_log_ratio(logp, ref_logp)


def k2(logp: Array, ref_logp: Array) -> Array:
  """k2: half the squared log-ratio, biased in value, correct in gradient.

  `k2 = d**2 / 2`. On-policy its gradient as a loss term is that of KL(policy ||
  reference). Source: Schulman 2020, "Approximating KL divergence".

  Args:
    logp: `[...]` log-probabilities under the policy, nats.
    ref_logp: `[...]` the same tokens under the reference, nats.

  Returns:
    `[...]` float32, nats squared.

  Example:
    >>> logp, ref_logp = jnp.log(jnp.array([[0.5, 0.25], [0.25, 0.5]]))
    >>> print(kl.k2(logp, ref_logp))
    [0.2402 0.2402]
  """
  return 0.5 * _log_ratio(logp, ref_logp) ** 2


def k3(logp: Array, ref_logp: Array) -> Array:
  """k3: the unbiased estimator that is never negative, as in GRPO.

  `k3 = exp(d) - d - 1`; above `d = 20` it continues as its tangent, so that the gradient
  stays finite and still points back to the reference. On-policy its gradient as a loss term
  is that of the *forward* KL(reference || policy). Source: Schulman 2020,
  "Approximating KL divergence"; arXiv 2402.03300.

  Args:
    logp: `[...]` log-probabilities under the policy, nats.
    ref_logp: `[...]` the same tokens under the reference, nats.

  Returns:
    `[...]` float32, nats.

  Example:
    >>> logp, ref_logp = jnp.log(jnp.array([[0.5, 0.25], [0.25, 0.5]]))
    >>> print(kl.k3(logp, ref_logp))
    [0.1931 0.3069]
  """
  d = _log_ratio(logp, ref_logp)
  slope = math.expm1(MAX_LOG_RATIO)
  tangent = slope - MAX_LOG_RATIO + slope * (d - MAX_LOG_RATIO)
  inside = jnp.expm1(jnp.minimum(d, MAX_LOG_RATIO)) - d
  return jnp.where(d > MAX_LOG_RATIO, tangent, inside)


def k3_importance_weighted(logp: Array, ref_logp: Array, old_logp: Array) -> Array:
  """k3 for samples of an older policy, times the importance ratio.

  `exp(logp - old_logp) * k3`, unbiased in value off-policy. Gradients flow through the
  ratio too. On-policy its gradient is that of KL(policy || reference). Source:
  DeepSeek-V3.2, arXiv 2512.02556.

  Args:
    logp: `[...]` log-probabilities under the policy, nats.
    ref_logp: `[...]` the same tokens under the reference, nats.
    old_logp: `[...]` the same tokens under the policy that sampled them, nats.

  Returns:
    `[...]` float32, nats.

  Example:
    >>> logp, ref_logp, old_logp = jnp.log(jnp.array([[0.5], [0.25], [0.25]]))
    >>> print(kl.k3_importance_weighted(logp, ref_logp, old_logp))  # twice k3
    [0.3863]
  """
  log_ratio = -_log_ratio(logp, jax.lax.stop_gradient(old_logp))
  ratio = jnp.exp(jnp.clip(log_ratio, -MAX_LOG_RATIO, MAX_LOG_RATIO))
  return ratio * k3(logp, ref_logp)


def exact(logits: Array, ref_logits: Array) -> Array:
  """The exact divergence, summed over the vocabulary.

  `sum_a p(a) (log p(a) - log q(a))`, with `p` and `q` the softmax of the logits.

  Args:
    logits: `[..., V]` logits of the policy.
    ref_logits: `[..., V]` logits of the reference.

  Returns:
    `[...]` float32, nats.

  Example:
    >>> p, q = jnp.array([[0.5, 0.5]]), jnp.array([[0.25, 0.75]])
    >>> print(kl.exact(jnp.log(p), jnp.log(q)))
    [0.1438]
  """
  chex.assert_equal_shape([logits, ref_logits])
  log_p = jax.nn.log_softmax(as_float(logits))
  log_q = jax.nn.log_softmax(as_float(ref_logits))
  # A token of probability 0 adds 0 to value and gradient, even if the reference bans it.
  p = jnp.exp(log_p)
  log_p, log_q = (jnp.where(p > 0, x, 0.0) for x in (log_p, log_q))
  return jnp.sum(p * (log_p - log_q), axis=-1)


@dataclasses.dataclass(frozen=True)
class FixedController:
  """A fixed coefficient; its state is empty.

  Attributes:
    coef: the coefficient of the penalty, in units of reward (or loss) per nat.
  """

  coef: float

  def init(self) -> tuple[()]:
    """The initial state."""
    return ()

  def update(self, state: tuple[()], kl: Array, n: int) -> tuple[()]:
    """The state after a batch; the divergence is ignored."""
    del kl, n
    return state

  def value(self, state: tuple[()]) -> Array:
    """The coefficient, a float32 scalar."""
    del state
    return jnp.float32(self.coef)


@dataclasses.dataclass(frozen=True)
class AdaptiveController:
  """A coefficient that keeps the divergence near a target; its state is the coefficient.

  `coef <- coef * (1 + min(n / horizon, 1) * clip(kl / target - 1, -0.2, 0.2))`. Source:
  arXiv 1909.08593, section 2.2; the limit on `n / horizon` is an addition.

  Attributes:
    coef: initial coefficient.
    target: target divergence, nats per completion.
    horizon: number of completions over which the coefficient reacts.
  """

  coef: float
  target: float
  horizon: int

  def __post_init__(self):
    if self.target <= 0 or self.horizon <= 0:
      raise ValueError(
        f"target is {self.target} and horizon is {self.horizon}; both must be positive"
      )

  def init(self) -> Array:
    """The initial state."""
    return jnp.float32(self.coef)

  def update(self, state: Array, kl: Array, n: int) -> Array:
    """The state after `n` completions with a mean divergence of `kl` nats each."""
    error = jnp.clip(jnp.asarray(kl, jnp.float32) / self.target - 1.0, -0.2, 0.2)
    # Without this limit a large batch could set the coefficient to 0, where it would stay.
    return state * (1.0 + error * jnp.minimum(n / self.horizon, 1.0))

  def value(self, state: Array) -> Array:
    """The coefficient, a float32 scalar."""
    return state


@dataclasses.dataclass(frozen=True)
class AnnealedController:
  """A coefficient `1 / t_k` with a linear schedule of `t_k`; its state counts updates.

  `t_k = start + (end - start) * min(k / steps, 1)` after `k` updates: as the step size
  shrinks, the penalty grows. Source: MDPO, arXiv 2005.09814, section 4.1, which anneals
  from 1 to 0; here `end` is above 0, so that the coefficient is finite.

  Attributes:
    start: initial step size, positive.
    end: final step size, positive.
    steps: number of updates between the two.
  """

  start: float = 1.0
  end: float = 0.1
  steps: int = 100

  def __post_init__(self):
    if not self.start > 0 or not self.end > 0 or not self.steps > 0:
      raise ValueError(
        f"start is {self.start}, end is {self.end} and steps is {self.steps}; all must be "
        "positive"
      )

  def init(self) -> Array:
    """The initial state."""
    return jnp.int32(0)

  def update(self, state: Array, kl: Array, n: int) -> Array:
    """The state after a batch; the divergence is ignored."""
    del kl, n
    return state + 1

  def value(self, state: Array) -> Array:
    """The coefficient, a float32 scalar."""
    progress = jnp.minimum(jnp.asarray(state, jnp.float32) / self.steps, 1.0)
    return 1.0 / (self.start + (self.end - self.start) * progress)
