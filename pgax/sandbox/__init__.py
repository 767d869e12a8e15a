"""Model-written Python against given tests, in sandboxes."""

from pgax.sandbox.report import Report, isolation_report
from pgax.rewards.code import Code, IsolationWarning, extract_code
from pgax.sandbox.process import Limits, SandboxError

__all__ = [
  "Code",
  "IsolationWarning",
  "Limits",
  "Report",
  "SandboxError",
  "extract_code",
  "isolation_report",
]
