"""Surrogate losses, per token and never reduced.

Each returns `SurrogateLoss(loss, clipped)`, both of the shape of `logp`; `clipped` is true
where a clip acts. There the gradient is exactly 0, but for CISPO and A-LoL, which bound a
weight; the limit of 20 nats on log-ratios (see `ratio`) is not counted as a clip.
Gradients flow through `logp` only: `old_logp`, `ref_logp`, `advantages` and `rewards` are
data. Where the loss is one of a whole completion, it stands at every one of its tokens:
under `aggregation.sequence_mean` these sum to the mean over completions.
"""

from pgax.ops.surrogates.mirror import mdpo, mdpo_kimi
from pgax.ops.surrogates.pairs import copg, p3o
from pgax.ops.surrogates.ratios import ratio
from pgax.ops.surrogates.sequence import a_lol, gmpo, gspo, gspo_token
from pgax.ops.surrogates.token import (
  cispo,
  clipped,
  dppo,
  policy_gradient,
  sapo,
  unclipped,
)

__all__ = [
  "a_lol",
  "cispo",
  "clipped",
  "copg",
  "dppo",
  "gmpo",
  "gspo",
  "gspo_token",
  "mdpo",
  "mdpo_kimi",
  "p3o",
  "policy_gradient",
  "ratio",
  "sapo",
  "unclipped",
]
