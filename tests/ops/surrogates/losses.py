"""Every surrogate behind one call, and what its loss and gradient are in a batch."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from pgax import aggregation, masking, surrogates
from tests.ops.calls import CALLS

# Every surrogate behind one call, `(logp, old_logp, scores, mask)`. `old_logp` is also the
# reference; `scores` are advantages or rewards, one for each completion.


def _unified(name, **settings):
  """A surrogate behind that call, with the settings of its call in `tests/ops/calls.py`."""
  function, arguments = getattr(surrogates, name), CALLS[f"surrogates.{name}"]
  arrays = [key for key, value in arguments.items() if isinstance(value, np.ndarray)]
  settings = {k: v for k, v in arguments.items() if k not in arrays} | settings

  def loss(logp, old_logp, scores, mask):
    given = {"logp": logp, "old_logp": old_logp, "ref_logp": old_logp, "mask": mask}
    if _kind(name) == "group":
      given |= {"advantages": scores, "rewards": scores}
    else:
      given["advantages"] = jnp.broadcast_to(scores[..., None], logp.shape)
    return function(**{key: given[key] for key in arrays}, **settings)

  return loss


def _kind(name):
  """Whether a surrogate is one of tokens, of sequences or of the completions of a group."""
  arguments = CALLS[f"surrogates.{name}"]
  if "mask" not in arguments:
    return "token"
  scores = arguments.get("advantages", arguments.get("rewards"))
  return "group" if scores.ndim < arguments["logp"].ndim else "sequence"


def _all(kind):
  names = (name for name in surrogates.__all__ if name != "ratio")
  return {name: _unified(name) for name in names if _kind(name) == kind}


TAU, BETA, STEP_SIZE = 0.7, 0.4, 0.5
# These leave masked tokens to the caller, since they have no mask.
TOKEN = _all("token") | {
  "cispo": _unified("cispo", clip_low=0.2, clip_high=0.3),
  "mdpo": _unified("mdpo", step_size=STEP_SIZE),
}
SEQUENCE = _all("sequence") | {
  "gspo": _unified("gspo", clip_low=0.2, clip_high=0.3),
  "gspo_token": _unified("gspo_token", clip_low=0.2, clip_high=0.3),
  "a_lol_token": _unified("a_lol", importance="token"),
  "a_lol_none": _unified("a_lol", importance="none"),
}
# The loss of a completion is a function of its probability.
GROUP = _all("group") | {
  "mdpo_kimi": _unified("mdpo_kimi", tau=TAU),
  "copg": _unified("copg", beta=BETA),
  "p3o_joint": _unified("p3o", form="joint"),
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
  """Loss and gradient of a plain `(log_ratios, rewards) -> (mean of group, slopes)`."""
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
