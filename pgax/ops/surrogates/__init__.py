"""Surrogate losses, per token and never reduced.

Each returns `SurrogateLoss(loss, clipped)`, both of the shape of `logp`; `clipped` is true
where a clip acts. There the gradient is exactly 0, except for CISPO and A-LoL, which clip a
weight. The limit of 20 nats on log-ratios (see `ratio`) does not count as a clip.

`logp` is differentiated; `old_logp`, `ref_logp`, `advantages` and `rewards` are data. The
old policy is the one that the update starts from. A loss of a whole completion is repeated
at each of its tokens: under `aggregation.sequence_mean` these sum to the mean over
completions.
"""

from pgax.ops.surrogates import mirror, pairs, sequence, target, token
from pgax.ops.surrogates.mirror import *
from pgax.ops.surrogates.pairs import *
from pgax.ops.surrogates.ratios import ratio
from pgax.ops.surrogates.sequence import *
from pgax.ops.surrogates.target import *
from pgax.ops.surrogates.token import *

__all__ = [
  "ratio",
  *mirror.__all__,
  *pairs.__all__,
  *sequence.__all__,
  *target.__all__,
  *token.__all__,
]
