"""The program: flags, what it prints, and grids at the smallest size."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.benchmarks import decode_grid
from tests.forked import open_programs

TINY = [
  "--layers=1",
  "--embed=8",
  "--heads=2",
  "--kv_heads=1",
  "--vocab=16",
  "--prompts=4",
  "--group=2",
  "--prompt_len=2",
  "--gen_len=1",  # one program samples, and samples the first token
  "--iters=1",
]


@pytest.fixture(scope="module")
def call():
  """Programs whose children keep what they compile, as this process does."""
  with pytest.MonkeyPatch.context() as patch:
    patch.setenv("JAX_COMPILATION_CACHE_DIR", jax.config.jax_compilation_cache_dir)
    patch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    patch.setenv("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
    with open_programs() as programs:
      yield lambda program, *arguments: programs(f"experiments.{program}", *arguments)


def run(call, *arguments):
  return call("benchmarks.run", *arguments)


def test_json_is_all_that_is_printed(call, tmp_path):
  out = tmp_path / "result.json"
  done = run(call, *TINY, "--skip_train", "--json", f"--out={out}")
  assert done.returncode == 0, done.stderr[-3000:]
  assert done.stdout == out.read_text()
  result = json.loads(done.stdout)
  assert result["gen_tok_s"] > 0 and "step_s" not in result
  assert result["params"] == 16 * 8 + 8 + 2 * 8 + 8 * 4 * (2 * 2 + 2 * 1) + 3 * 8 * 32


@pytest.mark.parametrize(
  ("flag", "message"),
  [
    ("--heads=3", "heads is 3; it must divide embed"),
    ("--kv_heads=3", "kv_heads is 3; it must divide heads"),
    ("--peers=vllm", "it must be some of transformers, trl, tunix"),
    ("--peer_python=trl=/nowhere/python", "it must be NAME=PATH"),
    ("--out=/nowhere/file", "is not a file in an existing folder"),
    ("--grid_rows=0", "--grid_rows is 0; it must be numbers above 0"),
  ],
)
def test_flags_that_are_refused_in_a_line(call, flag, message):
  extra = ["--grid=decode"] if "grid" in flag else ["--peers"] * ("python" in flag)
  done = run(call, flag, *extra)
  assert done.returncode and message in done.stderr and "Traceback" not in done.stderr
  assert done.stdout == "" or "FATAL" in done.stderr


def test_bfloat16_has_no_comparison(call):
  done = run(call, "--dtype=bfloat16", "--peers")
  assert "--peers compares in float32" in done.stderr


@pytest.mark.slow
def test_skewed_lengths(call):
  sizes = [*TINY[:-2], "--gen_len=16", "--skewed"]
  done = run(call, *sizes)
  assert done.returncode == 0, done.stderr[-3000:]
  (row,) = json.loads(done.stdout.splitlines()[-1])["skewed"]  # 8 completions, 1 slot
  assert row["slots"] == 1 and row["of_ideal"] == row["of_ideal_without_refill"] == 1


def test_skewed_lengths_need_several_completions_a_slot(call):
  done = run(call, "--prompts=1", "--group=4", "--skewed")
  assert "prompts * group is 4; --skewed takes a multiple of 8" in done.stderr


def test_decode_grid(call):
  sizes = ["--heads=2", "--embed=16", "--grid_rows=2", "--grid_slots=4"]
  done = run(call, *sizes, "--grid=decode")
  assert done.returncode == 0, done.stderr[-3000:]
  *lines, last = done.stdout.splitlines()
  rows = json.loads(last)["decode"]
  assert [row["kv_heads"] for row in rows] == [1, 2] and len(lines) == 4
  assert all(len(row["us"]) == 9 and min(row["us"].values()) > 0 for row in rows)
  assert all(line.count("**") == 4 for line in lines[2:])


def test_formulations_compute_the_same():
  q = jnp.arange(24.0).reshape(1, 2, 3, 4)
  k = jnp.arange(40.0).reshape(1, 2, 5, 4)
  for functions in (decode_grid.SCORES, decode_grid.MIX):
    left = q if functions is decode_grid.SCORES else q @ k.swapaxes(-1, -2)
    outputs = [
      function(left, k if layout == "slots" else k.swapaxes(-1, -2))
      for layout, function in functions.values()
    ]
    for output in outputs[1:]:
      np.testing.assert_allclose(output, outputs[0], rtol=1e-6)


def test_key_heads():
  assert decode_grid.key_heads(14) == [1, 2, 7, 14]
  assert decode_grid.key_heads(1) == [1]
