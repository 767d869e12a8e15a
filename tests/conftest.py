"""Settings shared by all tests."""

import ctypes
import gc
import os

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


@pytest.fixture(scope="module", autouse=True)
def free_compiled_programs():
  """Forgets a module's compiled programs, which would fill gigabytes by the end."""
  yield
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
