"""Group and batch advantages: rewards `[..., G]` to advantages, `[..., G]` or per token.

The group is the last axis. `valid` marks the completions that could be scored. All others
are left out of the statistics of their group and get advantage 0; their rewards may hold
anything, nan included. `mask` is 1 on actions, which may have gaps between them. Arithmetic
is in float32, or in float64 for rewards in float64.
"""

from pgax.ops.advantages import batch, group, tokens
from pgax.ops.advantages.batch import *
from pgax.ops.advantages.group import *
from pgax.ops.advantages.tokens import *

__all__ = [*batch.__all__, *group.__all__, *tokens.__all__]
