"""Kernels for TPUs: interpreted here, and compiled for TPUs that are not there."""

import functools

import jax.numpy as jnp
import pytest

from pgax.models.attend import Scores, merged
from pgax.models.attend.flash import Flash
from pgax.models.attend.flash_kernels import fetches
from pgax.models.cache import NEVER
from tests.devices import run_on_devices
from tests.models.attend import for_tpu
from tests.models.attend.cases import D, compare, make


@functools.cache
def interpreted(block):
  """Interpreted kernels with blocks of a size, as one function for each."""
  return functools.partial(merged.attend, kernel=Flash(block, 8, interpret=True))


@pytest.mark.parametrize(("repeats", "shared", "block"), [(1, True, 64), (3, False, 16)])
def test_prompt_and_completion(repeats, shared, block):
  given = make(repeats, shared=shared)
  compare(interpreted(block), given, None, Scores(D**-0.5), 1e-5)


def test_windows_and_softcaps():
  for window in (1, 5, 30, NEVER + 1):  # one program for all
    compare(interpreted(16), make(2, seed=window % 7), window, Scores(0.4, 2.0), 1e-5)


def test_rows_of_several_texts():
  compare(interpreted(16), make(2, segments=True), 4, Scores(D**-0.5), 1e-5)


def test_bfloat16():
  compare(interpreted(64), make(2, dtype=jnp.bfloat16), None, Scores(D**-0.5), 3e-2)


def test_blocks_that_do_not_meet_are_not_fetched():
  reached = jnp.asarray([[0, 1, 0, 1, 0], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1]], bool)
  expected = [[1, 1, 1, 3, 3], [0, 0, 0, 0, 0], [0, 1, 2, 3, 4]]
  assert fetches(reached).tolist() == expected


def test_rows_and_heads_are_divided_over_a_mesh():
  run_on_devices(4, "tests.models.attend.on_mesh")


@pytest.mark.skipif(not for_tpu.AVAILABLE, reason="libtpu is not installed: extra `tpu`")
@pytest.mark.parametrize("case", for_tpu.CASES, ids=str)
def test_compiles_for_tpus(case):
  program = for_tpu.compile_gradient(case)
  kernels = program.as_text().count('custom_call_target="tpu_custom_call"')
  assert kernels == 3 * case.parts  # forward, of queries, of keys
  # In bytes, on one device, of the queries with their own tokens.
  scores = 4 * for_tpu.ROWS * case.group * case.heads * case.length**2 // case.devices
  assert program.memory_analysis().temp_size_in_bytes < scores / 2
