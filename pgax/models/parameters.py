"""Parameters of a model: initialization, and the meaning of their names."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from pgax.types import Array, PyTree


def init_params(model: nn.Module, key: Array) -> PyTree:
  """Initializes parameters as plain arrays.

  Args:
    model: a decoder, with or without a scalar head.
    key: random key.

  Returns:
    A pytree of arrays, without Flax's boxes of logical axis names.
  """
  tokens = jnp.zeros((1, 1, 1), jnp.int32)
  return nn.unbox(model.init(key, tokens, tokens))


def matrices(params: PyTree) -> PyTree:
  """Marks the parameters that are matrices: no scales, biases or scalar heads.

  Names decide, because shapes do not: parameters of all layers are stacked, and a bias may
  have an axis of heads.

  Args:
    params: parameters of a decoder, or a pytree of the same structure.

  Returns:
    A pytree of bool with the structure of `params`.
  """

  def is_matrix(path: tuple, x: Array) -> bool:
    name = str(path[-1].key)
    return x.ndim > 1 and name != "scale" and not name.endswith("bias")

  return jax.tree_util.tree_map_with_path(is_matrix, params)


def cast_matrices(params: PyTree, dtype: str) -> PyTree:
  """Casts matrices, but not scales, biases and scalar heads, which compute in float32.

  Layers cast a matrix to their compute dtype before they multiply, so that matrices which
  are held in that dtype give the same numbers.

  Args:
    params: parameters of a decoder, with or without a scalar head.
    dtype: dtype of the matrices.

  Returns:
    The parameters.
  """
  return jax.tree.map(
    lambda x, is_matrix: x.astype(dtype) if is_matrix else x, params, matrices(params)
  )


def input_axes(name: str) -> int:
  """Returns the number of input axes of a matrix.

  The output projection of attention has two: heads and head width.

  Args:
    name: last part of the matrix's path, such as `out`.

  Returns:
    The number of axes, not counting those of `stacked_axes`.
  """
  return 2 if name == "out" else 1


def stacked_axes(path: tuple[str, ...]) -> int:
  """Returns the number of leading axes that matrices are stacked on: layers, experts.

  Args:
    path: path of the parameter below `params`.

  Returns:
    The number of axes.
  """
  of_experts = "experts" in path and path[-1] != "router"
  return int("blocks" in path) + of_experts


def matrix_axes(
  path: tuple[str, ...], rank: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
  """Returns the input axes and the output axes of a matrix of a block, or of an adapter.

  Args:
    path: path of the parameter below `params`.
    rank: number of its axes, stacked ones included.

  Returns:
    Two tuples of axes.
  """
  is_adapter = path[-1] in ("a", "b")
  matrix = path[:-1] if is_adapter else path
  start = stacked_axes(matrix)
  inputs = {"a": rank - 1 - start, "b": 1}.get(path[-1], input_axes(path[-1]))
  return tuple(range(start, start + inputs)), tuple(range(start + inputs, rank))


def unroll(params: PyTree) -> PyTree:
  """Splits parameters by layer, for a decoder that is `unrolled`.

  Args:
    params: parameters of a decoder, layers stacked.

  Returns:
    Parameters whose `blocks` have `layers_0` and so on.
  """
  tree = dict(params["params"])
  stacked = tree["blocks"]
  count = len(jax.tree.leaves(stacked)[0])
  layers = {f"layers_{i}": jax.tree.map(lambda x, i=i: x[i], stacked) for i in range(count)}
  return {**params, "params": tree | {"blocks": layers}}
