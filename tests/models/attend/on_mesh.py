"""Attention by kernels on a mesh of several devices; a program for `tests.devices`."""

from pgax.distributed import MeshConfig, make_mesh
from pgax.distributed.partitioning import training_layout
from pgax.models.attend import ScoreScale, kernel
from tests.models.attend.cases import D, compare, make

LAYOUT = training_layout(make_mesh(MeshConfig(model=2)))  # divides rows and key heads
ROWS = []


def counted(queries, *rest):
  ROWS.append(queries.shape)
  return kernel.dot_product(queries, *rest, implementation="xla")


def attend(queries, parts, tokens, window, scale):
  del window
  positions = tokens.positions
  return kernel.attend(counted, queries, parts, positions, scale.scale, LAYOUT)


if __name__ == "__main__":
  given = make(2)
  compare(attend, given, None, ScoreScale(D**-0.5), 1e-5)
  n, group, _, heads, repeats, _ = given[0].shape
  for shape in ROWS:  # of two devices each
    assert shape[0] == n * group // 2 and shape[2] == heads * repeats // 2
