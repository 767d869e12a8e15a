"""GSM8K: grade-school math word problems (Cobbe et al. 2021, arXiv 2110.14168).

`rewards.final_answer` scores a solution in the format of the data set.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from pgax.data.fields import text_field
from pgax.data.records import json_lines
from pgax.data.sources import from_rows
from pgax.data.task import Task
from pgax.data.templates import fill
from pgax.rewards.math import MARKER, parse_answer
from pgax.types import Example


@dataclasses.dataclass(frozen=True)
class GSM8KFields:
  """Builds examples from rows with `question` and an `answer` that ends in `#### n`.

  The ground truth is the number, without thousands separators. The solution is the entire
  answer.

  Attributes:
    template: prompt with `{prompt}` in place of the question.
  """

  template: str = "{prompt}\n"

  def __post_init__(self):
    fill(self.template, "")  # checks the template

  def __call__(self, row: Mapping[str, Any]) -> Example:
    """Builds an example from a row.

    Args:
      row: fields of the row.

    Returns:
      An `Example`.

    Raises:
      ValueError: if a field is missing, or the answer has no number after the marker.
    """
    question, solution = text_field(row, "question"), text_field(row, "answer")
    answer = parse_answer(solution)
    if answer is None:
      raise ValueError(f"the answer has no number after {MARKER!r}")
    return Example(fill(self.template, question), f"{answer:f}", solution)


def gsm8k(
  train_path: str,
  held_out_path: str,
  template: str = GSM8KFields.template,
  max_bad_rows: int = 0,
) -> Task:
  """Reads GSM8K from its two original files.

  Args:
    train_path: JSON Lines file of the training problems; see `GSM8KFields`.
    held_out_path: JSON Lines file of the held-out problems.
    template: prompt with `{prompt}` in place of the question.
    max_bad_rows: maximum number of bad rows to skip in each file; see `read_problems`.

  Returns:
    A `Task`.

  Raises:
    ValueError: if a file has too many bad rows or no problems, or a question is in both
      files.
    OSError: if a file cannot be read.
  """
  parse = GSM8KFields(template)
  return from_rows(json_lines(train_path), json_lines(held_out_path), parse, max_bad_rows)
