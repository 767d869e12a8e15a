"""The rows of a run's JSON Lines files, and how they are read back."""

from pathlib import Path
from typing import Any

from pgax.runs.json_lines import read_lines

METRICS, SAMPLES = "metrics.jsonl", "samples.jsonl"


def metrics_file(stage: str = "") -> str:
  """Returns the name of the file of a stage's metrics; see `protocol.by_stage`."""
  return f"{stage}.jsonl" if stage else METRICS


def read_metrics(workdir: Path, stage: str = "") -> list[dict[str, Any]]:
  """Reads the metrics of a stage.

  Args:
    workdir: folder of the run.
    stage: empty or `supervised`.

  Returns:
    A row for every logged step: `step`, and numbers (None if not finite) by name. Bad
    lines are left out with a warning.
  """
  return read_lines(workdir / metrics_file(stage), is_metrics)


def read_samples(workdir: Path) -> list[dict[str, Any]]:
  """Reads the logged completions.

  Args:
    workdir: folder of the run.

  Returns:
    Rows with `step`, `split` and the fields of `rollout.samples.Sample`. Bad lines are left
    out with a warning.
  """
  return read_lines(workdir / SAMPLES, is_sample)


def is_metrics(row: dict) -> bool:
  """Returns whether a JSON object is a row of metrics."""
  return _is_step(row) and all(_is_number(x) or x is None for x in row.values())


def is_sample(row: dict) -> bool:
  """Returns whether a JSON object is a logged completion."""
  texts = (row.get(x) for x in ("split", "prompt", "completion", "ground_truth"))
  tokens, logp = row.get("tokens"), row.get("logp")
  reward, advantages = row.get("reward"), row.get("advantages")
  return (
    _is_step(row)
    and all(isinstance(x, str) for x in texts)
    and all(isinstance(row.get(x), bool) for x in ("right", "finished"))
    and (reward is None or _is_number(reward))
    and isinstance(tokens, list)
    and all(isinstance(x, str) for x in tokens)
    and _are_numbers(logp, len(tokens))
    and (advantages is None or _are_numbers(advantages, len(tokens)))
  )


def _is_step(row: dict) -> bool:
  step = row.get("step")
  return isinstance(step, int) and not isinstance(step, bool)


def _is_number(value: object) -> bool:
  return isinstance(value, int | float) and not isinstance(value, bool)


def _are_numbers(values: object, count: int) -> bool:
  if not isinstance(values, list) or len(values) != count:
    return False
  return all(x is None or _is_number(x) for x in values)  # None if it was not finite
