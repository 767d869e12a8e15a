"""The folder of a run: workdir, checkpoints, loggers and interrupts."""

from pgax.runs.checkpoint import CheckpointConfig, Checkpoints
from pgax.runs.compilation_cache import enable_compilation_cache
from pgax.runs.interrupt import Interrupt
from pgax.runs.loggers import Logger, open_loggers
from pgax.runs.workdir import open_workdir, read_config

__all__ = [
  "CheckpointConfig",
  "Checkpoints",
  "Interrupt",
  "Logger",
  "enable_compilation_cache",
  "open_loggers",
  "open_workdir",
  "read_config",
]
