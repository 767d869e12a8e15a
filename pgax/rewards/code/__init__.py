"""Model-written Python against given tests, in sandboxes."""

from pgax.rewards.code.report import Report, isolation_report
from pgax.rewards.code.reward import Code, IsolationWarning, extract_code
from pgax.rewards.code.sandbox import Limits, SandboxError

__all__ = [
  "Code",
  "IsolationWarning",
  "Limits",
  "Report",
  "SandboxError",
  "extract_code",
  "isolation_report",
]
