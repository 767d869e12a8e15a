"""Settings shared by all tests."""

import ctypes
import gc
import os
from pathlib import Path

os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")

import hypothesis
import jax
import pytest

from pgax.learner import compiled
from pgax.runs import enable_compilation_cache

enable_compilation_cache()

# Examples are cheap once a shape is compiled, and the first compilation has no deadline.
# Derandomized, so that running a failed test again fails again.
hypothesis.settings.register_profile(
  "pgax", deadline=None, max_examples=60, derandomize=True, database=None
)
hypothesis.settings.load_profile("pgax")


# Nearly all that tests do is to compile programs that run once. XLA's CPU backend compiles
# a train step in an eighth of the time, and in half of the memory, if LLVM optimizes
# nothing and fusions are not emitted through MLIR. What a program computes and how it is
# laid out in memory does not depend on them, other than by rounding.
_QUICK_FLAGS = (
  "--xla_backend_optimization_level=0",
  "--xla_llvm_disable_expensive_passes=true",
  "--xla_cpu_use_fusion_emitters=false",
)


def pytest_configure(config):
  """Compiles quickly in the test command; slow tests have the programs that users have.

  XLA reads the flags when it first compiles; programs that tests start inherit them.
  """
  if config.option.markexpr == "not slow":
    flags = [os.environ.get("XLA_FLAGS", ""), *_QUICK_FLAGS]
    os.environ["XLA_FLAGS"] = " ".join(filter(None, flags))


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


def pytest_collection_modifyitems(items):
  """Gives slow tests no timeout; the others have the one in pyproject.toml."""
  for item in items:
    if item.get_closest_marker("slow"):
      item.add_marker(pytest.mark.timeout(0))
