"""Settings shared by all tests."""

import ctypes
import gc
import os
from pathlib import Path

os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
# Nearly all that tests do is to compile programs that run once. XLA's CPU backend compiles
# a train step in an eighth of the time and half of the memory if it does not emit fusions
# through MLIR and LLVM optimizes nothing. Both change how a program is written in machine
# code, and so its rounding, but not what it computes or how it is laid out in memory.
# Programs that tests start inherit these settings, and XLA its flags when it is loaded.
if "--xla_cpu_use_fusion_emitters" not in os.environ.get("XLA_FLAGS", ""):
  os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "") + " --xla_cpu_use_fusion_emitters=false"
  )
os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"

import hypothesis
import jax
import pytest

from pgax.learner import compiled
from pgax.runs import enable_compilation_cache

enable_compilation_cache()
jax.config.update("jax_disable_most_optimizations", True)  # a plugin may have imported it

# Examples are cheap once a shape is compiled, and the first compilation has no deadline.
# Derandomized, so that running a failed test again fails again.
hypothesis.settings.register_profile(
  "pgax", deadline=None, max_examples=60, derandomize=True, database=None
)
hypothesis.settings.load_profile("pgax")


_FEW = "JAX_DISABLE_MOST_OPTIMIZATIONS"
_MAX_BYTES = 10**9  # of a worker between two modules; a module may add as much


def _resident_bytes() -> int:
  """Memory of this process; on systems that don't report it, more than any limit."""
  path = Path("/proc/self/statm")
  if not path.exists():
    return _MAX_BYTES + 1
  return int(path.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture(scope="module", autouse=True)
def free_compiled_programs():
  """Forgets compiled programs, which would fill gigabytes if kept to the end."""
  yield
  if _resident_bytes() <= _MAX_BYTES:
    return
  compiled.clear()
  jax.clear_caches()
  gc.collect()
  if hasattr(libc := ctypes.CDLL(None), "malloc_trim"):  # glibc keeps what is freed
    libc.malloc_trim(0)


@pytest.hookimpl(tryfirst=True)  # before fixtures compile something
def pytest_runtest_setup(item):
  """Lets LLVM optimize the programs of tests that are marked so, and of their processes."""
  few = str(int(item.get_closest_marker("optimized") is None))
  if os.environ[_FEW] != few:
    os.environ[_FEW] = few
    jax.config.update(_FEW.lower(), few == "1")
    compiled.clear()
    jax.clear_caches()


def pytest_collection_modifyitems(items):
  """Gives slow tests no timeout; the others have the one in pyproject.toml."""
  for item in items:
    if item.get_closest_marker("slow"):
      item.add_marker(pytest.mark.timeout(0))
