"""Every surrogate behind one call, and what its loss and gradient are in a batch."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from pgax import aggregation, masking, surrogates


def _by_token(function):
  """A surrogate of `(logp, old_logp, advantages)`, given one number for a completion."""

  def loss(logp, old_logp, scores, mask):
    del mask
    return function(logp, old_logp, jnp.broadcast_to(scores[..., None], logp.shape))

  return loss


def _by_sequence(function):
  """A surrogate of `(logp, old_logp, advantages, mask)`, given the same."""

  def loss(logp, old_logp, scores, mask):
    tokens = jnp.broadcast_to(scores[..., None], logp.shape)
    return function(logp, old_logp, tokens, mask)

  return loss


def _a_lol(importance):
  return _by_sequence(lambda *xs: surrogates.a_lol(*xs, importance=importance))


TAU, BETA, STEP_SIZE = 0.7, 0.4, 0.5
TOKEN = {  # these leave padding to the caller, as they have no mask
  "policy_gradient": _by_token(lambda x, old, a: surrogates.policy_gradient(x, a)),
  "unclipped": _by_token(surrogates.unclipped),
  "clipped": _by_token(surrogates.clipped),
  "cispo": _by_token(lambda *xs: surrogates.cispo(*xs, 0.2, 0.3)),
  "sapo": _by_token(surrogates.sapo),
  "dppo": _by_token(surrogates.dppo),
  "mdpo": _by_token(lambda *xs: surrogates.mdpo(*xs, STEP_SIZE)),
}
SEQUENCE = {
  "gspo": _by_sequence(lambda *xs: surrogates.gspo(*xs, 0.2, 0.3)),
  "gspo_token": _by_sequence(lambda *xs: surrogates.gspo_token(*xs, 0.2, 0.3)),
  "gmpo": _by_sequence(surrogates.gmpo),
  "a_lol": _a_lol("sequence"),
  "a_lol_token": _a_lol("token"),
  "a_lol_none": _a_lol("none"),
}
GROUP = {  # from rewards, and the loss of a completion is that of its whole probability
  "mdpo_kimi": lambda *xs: surrogates.mdpo_kimi(*xs, TAU),
  "p3o": surrogates.p3o,
  "p3o_joint": lambda *xs: surrogates.p3o(*xs, form="joint"),
  "copg": lambda *xs: surrogates.copg(*xs, BETA),
}
ALL = TOKEN | SEQUENCE | GROUP


def slope(function, logp):
  """Derivative of the sum of a loss by each log-probability."""
  return jax.grad(lambda x: jnp.sum(function(x).loss))(jnp.asarray(logp))


@functools.partial(jax.jit, static_argnums=0)
def in_batch(function, logp, old_logp, scores, mask):
  """The mean over completions of their losses, its gradient, and where a clip acts.

  Args:
    function: one of the functions above.
    logp: `[N, G, T]`.
    old_logp: `[N, G, T]`.
    scores: `[N, G]`, advantages or rewards.
    mask: `[N, G, T]`.

  Returns:
    A scalar, its gradient by `logp`, and a mask.
  """

  def loss(x):
    result = function(x, old_logp, scores, mask)
    assert result.loss.shape == result.clipped.shape == logp.shape
    assert result.loss.dtype == jnp.float32 and result.clipped.dtype == bool
    weights = aggregation.sequence_mean(mask)
    return jnp.sum(weights * masking.select(result.loss, mask)), result.clipped

  (value, acts), gradient = jax.value_and_grad(loss, has_aux=True)(logp)
  return value, gradient, acts


def random_batch(seed=0, shape=(3, 4, 5)):
  """Log-probabilities, scores and a mask with empty completions and a group of one."""
  rng = np.random.default_rng(seed)
  logp, old_logp = -rng.random((2, *shape)).astype(np.float32)
  scores = rng.normal(size=shape[:-1]).astype(np.float32)
  lengths = rng.integers(1, shape[-1] + 1, shape[:-1])
  lengths[0, 1:] = 0  # a group of one
  lengths[1, 0] = 0
  mask = np.arange(shape[-1]) < lengths[..., None]
  return logp, old_logp, scores, mask


def plain_groups(function, logp, old_logp, rewards, mask):
  """The same of a plain function `(log_ratios, rewards) -> (mean of the group, slopes)`."""
  value, gradient = 0.0, np.zeros(logp.shape)
  total = int((mask.sum(-1) > 0).sum())
  for n in range(logp.shape[0]):
    members = [k for k in range(logp.shape[1]) if mask[n, k].any()]
    if not members:
      continue
    each = logp.astype(np.float64) - old_logp
    log_ratios = [float(each[n, k][mask[n, k]].sum()) for k in members]
    loss, slopes = function(log_ratios, [float(rewards[n, k]) for k in members])
    value += loss * len(members) / total
    for k, derivative in zip(members, slopes, strict=True):
      gradient[n, k][mask[n, k]] = derivative * len(members) / total
  return value, gradient
