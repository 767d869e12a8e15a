"""LoRA as functions of parameter trees: low-rank adapters beside frozen parameters.

A training pass uses `attach(config, base, adapters)`, whose gradient reaches the adapters
only. Layers add `x a b` to `x W`, so neither a merged matrix nor its gradient is ever in
memory, and the base is one set of arrays for the policy, for its frozen reference and for
any number of adapters. The sampler uses `merged` parameters, whose layers have no more
products than without adapters.

Source: LoRA, arXiv 2106.09685.
"""

import dataclasses
import fnmatch
import functools
import math
from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax.traverse_util import flatten_dict, unflatten_dict
from jax.sharding import NamedSharding, PartitionSpec

from pgax.errors import check_each
from pgax.models.layers import ADAPTERS
from pgax.models.parameters import input_axes, matrices, stacked_axes
from pgax.types import Array, PyTree


@dataclasses.dataclass(frozen=True)
class LoraConfig:
  """Settings of the adapters.

  Attributes:
    rank: rank of each adapter; 0 for no adapters.
    alpha: scale of the adapters: the change of a matrix is multiplied by `alpha / rank`.
    targets: patterns (`*`, `?`) of the dotted names of adapted matrices, such as
      `blocks.attention.query`.
  """

  rank: int = 0
  alpha: float = 16.0
  targets: tuple[str, ...] = ("blocks.attention.*", "blocks.mlp.*")

  def __post_init__(self):
    object.__setattr__(self, "targets", tuple(self.targets))  # a list has no hash
    if not isinstance(self.rank, int) or self.rank < 0:
      raise ValueError(
        f"lora.rank is {self.rank!r}; it must be at least 0, and a whole number"
      )
    check_each(self, ["alpha"], lambda x: 0 < x < math.inf, "positive and finite", "lora.")
    if not self.targets:
      raise ValueError("lora.targets is empty; it must have at least one pattern")


class PolicyParams(NamedTuple):
  """The parameters of a policy, as a run trains them; see `merged`.

  Attributes:
    base: frozen parameters under adapters; empty without adapters.
    trained: trained parameters: all of the decoder's, or adapters.
  """

  base: PyTree
  trained: PyTree


def _targets(config: LoraConfig, params: PyTree) -> list[tuple[str, ...]]:
  """Returns the paths of the adapted matrices, in the order of their names."""
  if not config.rank:
    raise ValueError("lora.rank is 0; it must be at least 1 for adapters")
  flat = flatten_dict(matrices(params["params"]))
  names = {".".join(path): path for path, is_matrix in flat.items() if is_matrix}
  chosen = set()
  for pattern in config.targets:
    matches = fnmatch.filter(names, pattern)
    if not matches:
      allowed = ", ".join(sorted(names))
      raise ValueError(f"lora.targets has {pattern!r}, which matches none of {allowed}")
    chosen.update(matches)
  return [names[name] for name in sorted(chosen)]


def _axes(path: tuple[str, ...]) -> tuple[int, int]:
  """Returns where the input axes of a matrix start and end, after the stacked ones."""
  start = stacked_axes(path)
  return start, start + input_axes(path[-1])


def init(config: LoraConfig, params: PyTree, key: Array) -> PyTree:
  """Initializes adapters that change nothing yet: `a` is random and `b` is zero.

  Args:
    config: adapter settings.
    params: parameters of a `Decoder`; arrays, or shapes.
    key: random key.

  Returns:
    For each adapted matrix, under its path: `a`, `[..., inputs, rank]`, and `b`,
    `[..., rank, outputs]`, float32.

  Raises:
    ValueError: if a pattern matches no matrix (the message names the pattern and lists the
      matrices), or the rank is above that of every adapted matrix.
  """
  flat, adapters = flatten_dict(params["params"]), {}
  paths = _targets(config, params)
  _check_rank(config, {path: flat[path].shape for path in paths})
  for index, path in enumerate(paths):
    shape, (start, end) = flat[path].shape, _axes(path)
    inputs, outputs = shape[start:end], shape[end:]
    a_shape = (*shape[:start], *inputs, config.rank)
    noise = jax.random.normal(jax.random.fold_in(key, index), a_shape, jnp.float32)
    adapters[*path, "a"] = noise * math.prod(inputs) ** -0.5
    adapters[*path, "b"] = jnp.zeros((*shape[:start], config.rank, *outputs), jnp.float32)
  return {"params": unflatten_dict(adapters)}


def _check_rank(
  config: LoraConfig, shapes: Mapping[tuple[str, ...], tuple[int, ...]]
) -> None:
  """Rejects adapters of more than full rank, which are larger than their matrices."""
  largest = 0
  for path, shape in shapes.items():
    start, end = _axes(path)
    largest = max(largest, min(math.prod(shape[start:end]), math.prod(shape[end:])))
  if config.rank > largest:
    raise ValueError(
      f"lora.rank is {config.rank}; the adapted matrices have at most rank {largest}"
    )


def merge(config: LoraConfig, params: PyTree, adapters: PyTree) -> PyTree:
  """Merges adapters into parameters: `W + alpha / rank * a b`.

  Args:
    config: adapter settings.
    params: parameters of a `Decoder`.
    adapters: adapters from `init`, trained or not.

  Returns:
    Parameters of a `Decoder`, which may be exported. Parameters without an adapter are the
    same arrays.
  """
  return _merge(config, params, adapters, _targets(config, params))


def _merge(
  config: LoraConfig, params: PyTree, adapters: PyTree, paths: list[tuple[str, ...]]
) -> PyTree:
  """Merges the adapters of some matrices."""
  flat, changes = flatten_dict(params["params"]), flatten_dict(adapters["params"])
  merged = dict(flat)
  for path in paths:
    a, b = changes[*path, "a"], changes[*path, "b"]
    merged[path] = _sum(flat[path], a, b, config.alpha / config.rank, _axes(path))
  return {"params": unflatten_dict(merged)}


# Each matrix is jitted alone, so that the others stay the same arrays outside of jit.
@functools.partial(jax.jit, static_argnames="axes")
def _sum(weight: Array, a: Array, b: Array, scale: float, axes: tuple[int, int]) -> Array:
  start, end = axes
  layers, inputs = "yz"[:start], "ij"[: end - start]
  outputs = "klmn"[: weight.ndim - end]
  formula = f"{layers}{inputs}r,{layers}r{outputs}->{layers}{inputs}{outputs}"
  return (weight + scale * jnp.einsum(formula, a, b)).astype(weight.dtype)


def merged(config: LoraConfig, base: PyTree, trained: PyTree) -> PyTree:
  """Computes plain parameters of a decoder from the trained ones.

  Args:
    config: adapter settings.
    base: frozen parameters of a `Decoder`; ignored without adapters.
    trained: the adapters, or all parameters of the decoder if there are no adapters.

  Returns:
    Parameters of a `Decoder`.
  """
  return merge(config, base, trained) if config.rank else trained


def attach(config: LoraConfig, base: PyTree, trained: PyTree) -> PyTree:
  """Puts the trained adapters beside the base, which gets no gradient.

  Adapters of the embedding, the unembedding and routers are merged.

  Args:
    config: adapter settings.
    base: frozen parameters of a `Decoder`; ignored without adapters.
    trained: the adapters, or all parameters of the decoder if there are no adapters.

  Returns:
    Variables of a `Decoder`: parameters, and adapters in the collection `ADAPTERS`.
  """
  if not config.rank:
    return trained
  base = jax.lax.stop_gradient(base)
  paths = _targets(config, base)
  beside = [path for path in paths if "blocks" in path and path[-1] != "router"]
  params = _merge(config, base, trained, [path for path in paths if path not in beside])
  flat = flatten_dict(trained["params"])
  adapters = {}
  for path in beside:
    adapters[*path, "a"] = flat[*path, "a"]
    adapters[*path, "b"] = flat[*path, "b"] * (config.alpha / config.rank)
  return {**params, ADAPTERS: unflatten_dict(adapters)}


def shardings(config: LoraConfig, params: PyTree, param_shardings: PyTree) -> PyTree:
  """Shards adapters like their matrices, along inputs and outputs; ranks are not sharded.

  Args:
    config: adapter settings.
    params: parameters of a `Decoder`; arrays, or shapes.
    param_shardings: shardings of the parameters, from `partitioning.param_shardings`.

  Returns:
    A pytree of `NamedSharding` with the structure of the adapters.
  """
  flat, adapters = flatten_dict(params["params"]), {}
  for path in _targets(config, params):
    base, (start, end) = flatten_dict(param_shardings["params"])[path], _axes(path)
    spec = (*base.spec, *[None] * (flat[path].ndim - len(base.spec)))
    a_spec = PartitionSpec(*spec[:end], None)
    b_spec = PartitionSpec(*spec[:start], None, *spec[end:])
    adapters[*path, "a"] = NamedSharding(base.mesh, a_spec)
    adapters[*path, "b"] = NamedSharding(base.mesh, b_spec)
  return {"params": unflatten_dict(adapters)}
