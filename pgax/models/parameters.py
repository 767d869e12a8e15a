"""What the parameters of a model are, by their names."""

import jax

from pgax.types import Array, PyTree


def matrices(params: PyTree) -> PyTree:
  """Which parameters are matrices, and not scales, biases or the critic's head.

  Shapes alone do not tell: parameters of all layers are stacked, and a bias has an axis of
  heads.

  Args:
    params: of a `Decoder` or a `Critic`; arrays, or anything in their place.

  Returns:
    A pytree of bool, the structure of `params`.
  """

  def is_matrix(path: tuple, x: Array) -> bool:
    name = str(path[-1].key)
    return x.ndim > 1 and name != "scale" and not name.endswith("bias")

  return jax.tree_util.tree_map_with_path(is_matrix, params)


def input_axes(name: str) -> int:
  """How many of a matrix's axes are multiplied with: heads and their width are two.

  Args:
    name: last part of the matrix's path, `out` say.

  Returns:
    The number, the axis of layers not counted.
  """
  return 2 if name == "out" else 1
