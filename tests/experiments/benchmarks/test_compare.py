"""Comparisons: turns, ratios, and the same work in pgax and torch."""

import json
import sys

import numpy as np
import pytest
import torch

from experiments.benchmarks import children, compare, grids, report
from experiments.benchmarks.machine import step_bytes, update_flops
from experiments.benchmarks.shape import Shape
from experiments.benchmarks.sides import with_pgax, with_transformers
from experiments.benchmarks.worker import Work, Worker
from pgax.errors import UserError
from pgax.models import Decoder
from tests.logits import completion_logits

TINY = Shape(
  layers=1,
  embed=8,
  heads=2,
  kv_heads=1,
  vocab=16,
  prompts=2,
  group=2,
  prompt_len=3,
  gen_len=4,
  micro=2,
)
CALLS = ("generate", *compare.UPDATE, *compare.LIMITS)
SPEEDS = {"gen_s", "gen_cpu_s", "gen_compile_s", "gen_tok_s"}
STEPS = {"step_s", "step_cpu_s", "step_compile_s", "step_tok_s", "grad_norms"}


class Recorded:
  """Builds work that writes down when it is called."""

  def __init__(self, log, name, norm=1.0):
    self.log, self.name, self.norm = log, name, norm

  def __call__(self, shape, names, folder):
    def update():
      self.log.append(self.name)
      return self.norm

    return Work({"update": update}, {"params": 7, "limit_work": {}})


@pytest.fixture(scope="module")
def result(tmp_path_factory):
  folder = tmp_path_factory.mktemp("weights") / "shape"
  sides = {
    "pgax": Worker(with_pgax.build),
    "transformers": Worker(with_transformers.build),
  }
  return compare.measure(sides, TINY, CALLS, 2, folder), folder


def test_keys(result):
  ours = json.loads(json.dumps(result[0]))
  expected = {"params", "peak_bytes", "peak_bytes_of", "device", "versions", "args"}
  expected |= SPEEDS | STEPS | {"machine", "step_mfu"}
  assert expected <= set(ours)
  assert ours["args"] == {**json.loads(json.dumps(vars(TINY))), "rounds": 2}
  assert len(ours["gen_s_all"]) == len(ours["step_s_all"]) == 2
  assert ours["gen_tok_s"] == pytest.approx(16 / ours["gen_s"])
  assert 0 < ours["step_mfu"] < 1
  theirs = ours["peers"]["transformers"]
  assert set(theirs) >= SPEEDS | STEPS
  assert theirs["params"] == ours["params"]
  assert set(theirs["ratio"]) == {"generate", "update"}


def test_gradients_are_those_of_torch(result):
  ours, theirs = result[0]["grad_norms"], result[0]["peers"]["transformers"]["grad_norms"]
  np.testing.assert_allclose(ours, theirs, rtol=1e-5)
  assert ours[0] != pytest.approx(ours[1], rel=1e-5)  # the first update took place


def test_logits_are_those_of_torch(result):
  folder = result[1]
  model = with_transformers.load(folder, TINY)
  batch = {name: torch.tensor(x) for name, x in np.load(folder / "batch.npz").items()}
  with torch.no_grad():
    theirs = model(with_transformers.sequences(batch)).logits[:, 2:-1]
  params = with_pgax.init_state(
    with_pgax.make_learner(TINY), with_pgax.make_mesh(), seed=0
  ).params
  rollout = with_pgax.random_rollout(TINY)
  decoder = Decoder(with_pgax.decoder_config(TINY))
  ours = completion_logits(
    decoder,
    params,
    rollout.prompt_tokens,
    rollout.prompt_mask,
    rollout.tokens,
    rollout.token_mask,
  )
  np.testing.assert_allclose(ours.reshape(theirs.shape), theirs, atol=1e-5)


def test_libraries_take_turns_after_a_warm_up():
  log = []
  sides = {name: Worker(Recorded(log, name)) for name in ("pgax", "tunix")}
  compare.measure(sides, TINY, ("update",), 3)
  assert log == ["pgax"] * 2 + ["tunix"] * 2 + ["pgax", "tunix"] * 3


def test_different_gradients():
  sides = {
    "pgax": Worker(Recorded([], "pgax")),
    "trl": Worker(Recorded([], "trl", norm=1.002)),
  }
  with pytest.raises(RuntimeError, match="gradient norms of pgax and trl differ"):
    compare.measure(sides, TINY, ("update",), 1)
  sides["tunix"] = Worker(Recorded([], "tunix", norm=5.0))  # has weights of its own
  sides["trl"] = Worker(Recorded([], "trl", norm=1.0009))
  assert set(compare.measure(sides, TINY, ("update",), 1)["peers"]) == {"trl", "tunix"}


def test_ratios():
  ours = {"update": [{"wall": 1.0, "cpu": 2.0}, {"wall": 2.0, "cpu": 2.0}]}
  theirs = {"update": [{"wall": 3.0, "cpu": 1.0}, {"wall": 4.0, "cpu": 3.0}], "other": []}
  ratio = compare._ratios(ours, theirs)
  assert ratio == {
    "update": {
      "wall": {"median": 2.5, "min": 2.0, "max": 3.0},
      "cpu": {"median": 1.0, "min": 0.5, "max": 1.5},
    }
  }
  assert report.spread(ratio["update"]["wall"]) == "2.50 (2.00-3.00)"


def test_shares_of_the_limits():
  ours = {"gen_s": 5.0, "first_token_s": 2.0, "step_s": 4.0, "params": 100}
  ours["limit_work"] = {"matmul": 600.0, "copy": 80.0}
  times = {"matmul": [{"wall": 2.0}] * 3, "copy": [{"wall": 4.0}] * 3}
  shares = compare._shares(TINY, ours, times)
  assert shares["machine"] == {"matmul_flops_s": 300, "bytes_s": 20}
  assert shares["step_mfu"] == update_flops(TINY) / 4 / 300
  assert shares["decode_tok_s"] == 4 * 3 / 3  # 4 completions, 3 tokens after the first
  assert shares["decode_bandwidth_share"] == step_bytes(TINY, 100) / 20
  assert compare._shares(TINY, ours, {}) == {}


def test_tables(result):
  lines = report.table(report.library_rows(result[0])).splitlines()
  assert [line.split()[1] for line in lines[2:]] == ["pgax", "transformers"]
  assert "of the matmul rate" in report.limits(result[0])
  grid = grids.format_table([result[0], result[0]]).splitlines()
  assert len(grid) == 2 + 4 and grid[2].startswith("| 2/1 ")
  assert report.table([("a", "bb"), ("1", "")]) == "| a | bb |\n| - | -- |\n| 1 |    |"


def test_shapes_of_the_samplers_grid():
  shapes = grids.sampler_shapes(Shape(heads=8, embed=64), (1, 64), (16, 512))
  sizes = {(x.kv_heads, x.rows, x.prompt_len) for x in shapes}
  assert sizes == {(k, b, p) for k in (1, 2, 4, 8) for b in (1, 64) for p in (16, 512)}
  with pytest.raises(ValueError, match="group is 8; it must divide grid_rows"):
    grids.sampler_shapes(Shape(), (12,), (16,))


def test_a_library_that_fails_says_why(tmp_path):
  with (
    children.open_children(("transformers",), {}) as sides,
    pytest.raises(UserError, match="transformers failed: .*empty"),
  ):
    sides["transformers"].build(TINY, ("update",), tmp_path / "empty")


def test_installed_libraries():
  assert children.installed_peers({"trl": sys.executable})[:2] == ["transformers", "trl"]
