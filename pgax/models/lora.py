"""Low-rank adapters as functions of trees: parameters in, parameters out.

The model knows nothing of them. A forward pass takes `apply(config, base, adapters)`, whose
gradient reaches the adapters alone, so that the base is one set of arrays for the policy,
for its frozen reference and for any number of adapters. The merged matrices stand in memory
only as long as the pass does.
"""

import dataclasses
import fnmatch
import functools
import math

import jax
import jax.numpy as jnp
from flax.traverse_util import flatten_dict, unflatten_dict
from jax.sharding import NamedSharding, PartitionSpec

from pgax.models.parameters import input_axes, matrices
from pgax.types import Array, PyTree

_STACKED = "blocks"  # parameters under this name have a leading axis of layers


@dataclasses.dataclass(frozen=True)
class LoraConfig:
  """Which matrices are adapted, and how much.

  Attributes:
    rank: of the change of a matrix; 0 for no adapters.
    alpha: the change is multiplied by `alpha / rank`.
    targets: patterns (`*`, `?`) of dotted names, such as `blocks.attention.query`.
  """

  rank: int = 0
  alpha: float = 16.0
  targets: tuple[str, ...] = ("blocks.attention.*", "blocks.mlp.*")

  def __post_init__(self):
    object.__setattr__(self, "targets", tuple(self.targets))  # a list has no hash
    if self.rank < 0:
      raise ValueError(f"lora.rank is {self.rank}; it must be at least 0, for no adapters")
    if not 0 < self.alpha < math.inf:
      raise ValueError(f"lora.alpha is {self.alpha}; it must be positive, and finite")
    if not self.targets:
      raise ValueError("lora.targets is empty; it must have at least one pattern")


def _targets(config: LoraConfig, params: PyTree) -> list[tuple[str, ...]]:
  """Paths of the adapted matrices, in the order of their names."""
  if not config.rank:
    raise ValueError("lora.rank is 0; there are no adapters")
  flat = flatten_dict(matrices(params["params"]))
  names = {".".join(path): path for path, is_matrix in flat.items() if is_matrix}
  chosen = set()
  for pattern in config.targets:
    found = fnmatch.filter(names, pattern)
    if not found:
      allowed = ", ".join(sorted(names))
      raise ValueError(f"lora.targets has {pattern!r}, which is none of {allowed}")
    chosen.update(found)
  return [names[name] for name in sorted(chosen)]


def _axes(path: tuple[str, ...]) -> tuple[int, int]:
  """Where a matrix's axes of inputs begin and end; those before are of layers."""
  layers = int(_STACKED in path)
  return layers, layers + input_axes(path[-1])


def init(config: LoraConfig, params: PyTree, key: Array) -> PyTree:
  """Fresh adapters, which change nothing: `a` is random and `b` is zero.

  Source: LoRA, arXiv 2106.09685.

  Args:
    config: of the adapters.
    params: of a `Decoder`; arrays, or shapes.
    key: random key.

  Returns:
    For each adapted matrix `a`, `[..., inputs, rank]`, and `b`, `[..., rank, outputs]`,
    float32, under the matrix's path.

  Raises:
    ValueError: if a pattern fits no matrix; it names the pattern and lists the matrices.
  """
  flat, adapters = flatten_dict(params["params"]), {}
  for index, path in enumerate(_targets(config, params)):
    shape, (start, end) = flat[path].shape, _axes(path)
    inputs, outputs = shape[start:end], shape[end:]
    a_shape = (*shape[:start], *inputs, config.rank)
    noise = jax.random.normal(jax.random.fold_in(key, index), a_shape, jnp.float32)
    adapters[*path, "a"] = noise * math.prod(inputs) ** -0.5
    adapters[*path, "b"] = jnp.zeros((*shape[:start], config.rank, *outputs), jnp.float32)
  return {"params": unflatten_dict(adapters)}


def merge(config: LoraConfig, params: PyTree, adapters: PyTree) -> PyTree:
  """Parameters with the adapters in them: `W + alpha / rank * a b`.

  Args:
    config: of the adapters.
    params: of a `Decoder`.
    adapters: from `init`, trained or not.

  Returns:
    Parameters of a `Decoder`, to be used or exported as any; those of no adapter are the
    same arrays.
  """
  flat, changes = flatten_dict(params["params"]), flatten_dict(adapters["params"])
  merged = dict(flat)
  for path in _targets(config, params):
    a, b = changes[*path, "a"], changes[*path, "b"]
    merged[path] = _sum(flat[path], a, b, config.alpha / config.rank, _axes(path))
  return {"params": unflatten_dict(merged)}


# Jitted by the matrix, so that all others are the same arrays outside of a jit too.
@functools.partial(jax.jit, static_argnames="axes")
def _sum(weight: Array, a: Array, b: Array, scale: float, axes: tuple[int, int]) -> Array:
  start, end = axes
  layers, inputs = "z" * start, "ij"[: end - start]
  outputs = "klmn"[: weight.ndim - end]
  formula = f"{layers}{inputs}r,{layers}r{outputs}->{layers}{inputs}{outputs}"
  return (weight + scale * jnp.einsum(formula, a, b)).astype(weight.dtype)


def apply(config: LoraConfig, base: PyTree, trained: PyTree) -> PyTree:
  """The parameters of a decoder, of what is trained of it; no gradient reaches the base.

  Args:
    config: of the adapters.
    base: of a `Decoder`, frozen; plays no part without adapters.
    trained: the adapters, or all of the decoder's parameters where there are none.

  Returns:
    Parameters of a `Decoder`.
  """
  if not config.rank:
    return trained
  return merge(config, jax.lax.stop_gradient(base), trained)


def shardings(config: LoraConfig, params: PyTree, param_shardings: PyTree) -> PyTree:
  """Where the adapters lie: their inputs and outputs as those of the matrix, ranks whole.

  Args:
    config: of the adapters.
    params: of a `Decoder`; arrays, or shapes.
    param_shardings: of the parameters, from `partitioning.param_shardings`.

  Returns:
    A pytree of `NamedSharding`, the structure of the adapters.
  """
  flat, found = flatten_dict(params["params"]), {}
  for path in _targets(config, params):
    base, (start, end) = flatten_dict(param_shardings["params"])[path], _axes(path)
    spec = (*base.spec, *[None] * (flat[path].ndim - len(base.spec)))
    a_spec = PartitionSpec(*spec[:end], None)
    b_spec = PartitionSpec(*spec[:start], None, *spec[end:])
    found[*path, "a"] = NamedSharding(base.mesh, a_spec)
    found[*path, "b"] = NamedSharding(base.mesh, b_spec)
  return {"params": unflatten_dict(found)}
