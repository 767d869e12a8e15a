"""Settings that all tests share."""

import os

os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")

import hypothesis

from pgax.training import enable_compilation_cache

enable_compilation_cache()

# Examples are cheap once a shape is compiled, and the first compilation has no deadline.
# Derandomised: a failure is found again by running the same test again.
hypothesis.settings.register_profile(
  "pgax", deadline=None, max_examples=60, derandomize=True, database=None
)
hypothesis.settings.load_profile("pgax")
