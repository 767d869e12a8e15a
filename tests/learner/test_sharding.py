"""One device and eight: the same completions, the same loss, the same gradient."""

import json

import numpy as np
import pytest

from pgax.distributed import MeshConfig, make_mesh
from tests.devices import run_on_devices


def _step(
  devices: int, fsdp: int = 1, model: int = 1, rank: int = 0, vocab_size: int = 260
) -> dict:
  """What `sharded_step.py` prints on that many host devices."""
  settings = fsdp, model, rank, vocab_size
  printed = run_on_devices(devices, "tests.learner.sharded_step", *settings)
  return json.loads(printed.splitlines()[-1])


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


@pytest.mark.slow
def test_what_the_mesh_does_not_divide():
  """261 tokens and two key heads, over four devices."""
  eight = _step(8, 2, 4, vocab_size=261)
  assert_same(_step(1, vocab_size=261), eight, shards=2, model=4)


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
