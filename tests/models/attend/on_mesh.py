"""Attention by kernels on a mesh of several devices; a program for `tests.devices`."""

from pgax.distributed import MeshConfig, make_mesh
from pgax.distributed.partitioning import training_layout
from pgax.models.attend import Scores, merged
from pgax.models.attend.flash import Flash
from pgax.models.attend.sharded import Sharded, on_mesh
from tests.models.attend.cases import D, compare, make

LAYOUT = training_layout(make_mesh(MeshConfig(model=2)))  # divides rows and key heads


def attend(*given):
  kernel = on_mesh(Flash(16, 8, interpret=True), LAYOUT)
  assert isinstance(kernel, Sharded)
  return merged.attend(*given, kernel)


if __name__ == "__main__":
  compare(attend, make(2), 7, Scores(D**-0.5), 1e-5)
