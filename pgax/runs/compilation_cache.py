"""JAX's persistent compilation cache, so that a second start compiles nothing."""

import os
from pathlib import Path

import jax


def enable_compilation_cache(folder: Path | None = None) -> Path:
  """Enables JAX's persistent cache for every program, however short its compilation.

  Args:
    folder: cache folder; by default `$XDG_CACHE_HOME/pgax/jax`, or `~/.cache/pgax/jax`.

  Returns:
    The folder.
  """
  if folder is None:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(base) / "pgax" / "jax"
  jax.config.update("jax_compilation_cache_dir", str(folder))
  jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
  jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
  return folder
