"""Runs untrusted Python in sandboxes and compares its results with tests."""

from pgax.sandbox.levels import available, best_level
from pgax.sandbox.process import LEVELS, Level, Limits, Process, SandboxError
from pgax.sandbox.report import IsolationWarning, Report, isolation_report
from pgax.sandbox.runner import run_case, run_tests

__all__ = [
  "LEVELS",
  "IsolationWarning",
  "Level",
  "Limits",
  "Process",
  "Report",
  "SandboxError",
  "available",
  "best_level",
  "isolation_report",
  "run_case",
  "run_tests",
]
