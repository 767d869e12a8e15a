"""Ops keep float64, in a process that has it, and make everything else float32."""

import os
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest

from pgax.ops.precision import as_float


def test_ops_keep_float64():
  command = [sys.executable, "-m", "tests.ops.precise"]
  environment = os.environ | {"JAX_ENABLE_X64": "1", "JAX_PLATFORMS": "cpu"}
  done = subprocess.run(command, env=environment, capture_output=True, text=True)
  assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize("dtype", [jnp.bfloat16, np.float16, np.int32, bool, np.float32])
def test_everything_else_is_float32(dtype):
  x = as_float(jnp.ones(3, dtype))
  assert x.dtype == jnp.float32
  np.testing.assert_array_equal(x, np.ones(3))
