"""Studies: many settings and seeds of a run as one program, with error bars."""

from pgax.study.engine import run_program
from pgax.study.policy import policy_program
from pgax.study.program import Program
from pgax.study.runs import Study, study, study_runs
from pgax.study.settings import check_run, free_numbers, reason_for_host, setting_name
from pgax.study.summary import Summary, over_seeds, steps_of, summarize

__all__ = [
  "Program",
  "Study",
  "Summary",
  "check_run",
  "free_numbers",
  "over_seeds",
  "policy_program",
  "reason_for_host",
  "run_program",
  "setting_name",
  "steps_of",
  "study",
  "study_runs",
  "summarize",
]
