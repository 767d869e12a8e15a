"""The well-known algorithms, each a composition of parts."""

from pgax.algorithms.presets import critic, group, imitation, policy_gradient, proximal
from pgax.algorithms.presets.critic import *
from pgax.algorithms.presets.group import *
from pgax.algorithms.presets.imitation import *
from pgax.algorithms.presets.policy_gradient import *
from pgax.algorithms.presets.proximal import *

_MODULES = (policy_gradient, critic, group, proximal, imitation)

__all__ = [name for module in _MODULES for name in module.__all__]

# Every preset, in the order of the documentation.
ALL = tuple(getattr(module, name) for module in _MODULES for name in module.__all__)
