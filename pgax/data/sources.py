"""Problems read from files."""

import json
from pathlib import Path

from pgax.data.tasks import Task
from pgax.rewards.math import MARKER, parse_answer
from pgax.types import Example


def read_gsm8k(path: str | Path) -> list[Example]:
  """Reads grade-school maths problems, one JSON object a line.

  Source: GSM8K, arXiv 2110.14168.

  Args:
    path: a file whose lines have `question` and `answer`, the latter ending in `#### n`.

  Returns:
    One `Example` a line; the answer is the worked solution.

  Raises:
    ValueError: for a row that is not JSON, lacks a field or an answer; it names the line.
    OSError: if the file can't be read.
  """
  examples = []
  with Path(path).open(encoding="utf-8") as lines:
    for number, line in enumerate(lines, start=1):
      try:
        row = json.loads(line)
        question, solution = row["question"], row["answer"]
        answer = parse_answer(solution)
        if not isinstance(question, str):
          raise TypeError(f"question is {question!r}")
      except (json.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
          f"{path}:{number}: expected a JSON object with the strings 'question' and "
          f"'answer'; {type(error).__name__}: {error}"
        ) from None
      if answer is None:
        raise ValueError(f"{path}:{number}: the answer has no number after {MARKER!r}")
      examples.append(Example(f"{question}\n", f"{answer:f}", solution))
  return examples


def gsm8k(train_path: str, held_out_path: str) -> Task:
  """Grade-school maths (arXiv 2110.14168) from its two original files.

  Args:
    train_path: file of the training problems; see `read_gsm8k`.
    held_out_path: file of the problems to be judged by.

  Returns:
    A `Task`.

  Raises:
    ValueError: for a bad row, or a question that stands in both files.
  """
  train, held_out = read_gsm8k(train_path), read_gsm8k(held_out_path)
  both = {x.prompt for x in train} & {x.prompt for x in held_out}
  if both:
    raise ValueError(
      f"{len(both)} questions stand in both {train_path} and {held_out_path}, such as "
      f"{min(both)!r}; the splits must not overlap"
    )
  return Task(train, held_out)
