"""The ops as parts of an algorithm: frozen, so that equal settings share one jit trace.

Each part implements one of the protocols of `pgax.types`, holds its settings as fields, and
calls the op that its docstring names. A module function of the right signature is a part
as well.
"""

from pgax.algorithms.parts import (
  advantages,
  critic,
  imitation,
  rewards,
  surrogates,
  weights,
)
from pgax.algorithms.parts.advantages import *
from pgax.algorithms.parts.critic import *
from pgax.algorithms.parts.imitation import *
from pgax.algorithms.parts.rewards import *
from pgax.algorithms.parts.surrogates import *
from pgax.algorithms.parts.weights import *

_MODULES = (advantages, critic, imitation, rewards, surrogates, weights)

__all__ = [name for module in _MODULES for name in module.__all__]
