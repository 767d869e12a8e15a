"""Placement of arrays: the mesh of devices, sharding rules and microbatches."""

from pgax.distributed.mesh import MeshConfig, make_mesh

__all__ = ["MeshConfig", "make_mesh"]
