"""Attention by kernels on a mesh of several devices; a program for `tests.devices`."""

import jax

from pgax.distributed import MeshConfig, make_mesh
from pgax.models.attend import Scores, merged
from pgax.models.attend.flash import Flash
from pgax.models.attend.sharded import Sharded, on_mesh
from tests.models.attend.cases import D, compare, make


def attend(*given):
  kernel = on_mesh(Flash(16, 8, interpret=True))
  assert isinstance(kernel, Sharded)
  return merged.attend(*given, kernel)


def main():
  with jax.set_mesh(make_mesh(MeshConfig(model=2))):  # divides rows and key heads
    compare(attend, make(2), 7, Scores(D**-0.5), 1e-5)


if __name__ == "__main__":
  main()
