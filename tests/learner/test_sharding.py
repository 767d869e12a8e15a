"""One device and eight: the same completions, the same loss, the same gradient."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pgax.distributed import MeshConfig, make_mesh

ROOT = Path(__file__).parents[2]


def _step(devices: int, fsdp: int = 1, model: int = 1, rank: int = 0) -> dict:
  """Runs `sharded_step.py` with that many host devices, in a separate process."""
  flags = f"--xla_force_host_platform_device_count={devices}"
  done = subprocess.run(
    [sys.executable, "-m", "tests.learner.sharded_step", *map(str, (fsdp, model, rank))],
    cwd=ROOT,
    env=os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
    capture_output=True,
    text=True,
    check=False,
  )
  assert done.returncode == 0, done.stderr[-2000:]
  return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def one():
  return _step(1)


@pytest.mark.parametrize(
  ("fsdp", "model", "shards"),
  [pytest.param(1, 1, 1, marks=pytest.mark.slow), (2, 2, 4)],
)
def test_eight_devices_compute_the_same(one, fsdp, model, shards):
  assert_same(one, _step(8, fsdp, model), shards, model)


@pytest.mark.slow
def test_adapters_on_eight_devices():
  assert_same(_step(1, rank=2), _step(8, 2, 2, rank=2), shards=4, model=2)


def assert_same(one, eight, shards, model):
  assert (one["devices"], eight["devices"]) == (1, 8)
  assert eight["shards"] == shards
  assert eight["prompts_per_device"] == 16 // (8 // model)
  assert eight["drawn"] == one["drawn"] == eight["queued"]
  assert eight["evaluated"] == one["evaluated"] and len(one["evaluated"]) == 10
  for name, value in one["metrics"].items():
    assert eight["metrics"][name] == pytest.approx(value, rel=1e-5, abs=1e-6), name
  for ours, theirs in zip(eight["gradient"], one["gradient"], strict=True):
    scale = np.abs(theirs).max()
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5 * scale)
  assert max(np.abs(g).max() for g in one["gradient"]) > 1e-4


def test_mesh_must_fit_the_devices():
  with pytest.raises(ValueError, match="mesh.fsdp is 3 and mesh.model is 1.*which is 1"):
    make_mesh(MeshConfig(fsdp=3))
  with pytest.raises(ValueError, match="mesh.model is 0"):
    make_mesh(MeshConfig(model=0))
