"""Settings that all tests share."""

import os

os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")

import hypothesis
import pytest

from pgax.training import enable_compilation_cache

enable_compilation_cache()

# Examples are cheap once a shape is compiled, and the first compilation has no deadline.
# Derandomised: a failure is found again by running the same test again.
hypothesis.settings.register_profile(
  "pgax", deadline=None, max_examples=60, derandomize=True, database=None
)
hypothesis.settings.load_profile("pgax")


def pytest_collection_modifyitems(items):
  """Slow tests may take as long as they do; for the others see `timeout` in pyproject."""
  for item in items:
    if item.get_closest_marker("slow"):
      item.add_marker(pytest.mark.timeout(0))
