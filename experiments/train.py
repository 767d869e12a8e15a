"""Trains a policy: `python -m experiments.train --workdir=DIR [--config=FILE]`.

Any setting of the config file can be changed by `--config.key=value`. The same command
goes on with a run that was interrupted. See `experiments/configs/` for what there is.
"""

import json
from pathlib import Path

from absl import flags

from experiments import program
from experiments.checkpoint import place
from experiments.configuration import freeze
from experiments.saved_config import to_json
from pgax.models import lora
from pgax.report import write_report
from pgax.training import RunConfig, train
from pgax.training.metrics import read_lines, read_samples
from pgax.training.policy import export_policy

_CONFIG = program.define_config(str(program.CONFIGS / "grpo.py"))
_WORKDIR = flags.DEFINE_string("workdir", None, "Folder of the run.", required=True)
_SHOWN = 4


def main() -> int:
  """Does the run, and tells where it started and where it arrived."""
  config, workdir = _CONFIG.value, Path(_WORKDIR.value)
  run = freeze(config)
  # Once through JSON, so that what is compared is what a file can hold.
  record = json.loads(json.dumps(to_json(config)))
  tokenizer = program.tokenizer(run.model_path)
  result = train(run, tokenizer, workdir, record)
  rows, supervised = (
    read_lines(workdir / f"{name}.jsonl") for name in ("metrics", "supervised")
  )
  samples = read_samples(workdir / "samples.jsonl")
  title = f"{run.name}, seed {run.seed}"
  page = write_report(rows, samples, title, workdir / "report", supervised)
  if not result.finished:
    reached = int(result.state.step) - run.supervised.steps
    print(
      f"\nInterrupted at {place(run, reached)}; a checkpoint is saved. Give the same "
      "command again to go on."
    )
    return 130
  _tell_left_out(run, rows)
  if run.steps:
    _tell(rows, samples)
  else:
    _tell_supervised(run, rows, samples)
  if run.model_path:
    params = lora.apply(run.lora, result.state.base, result.state.params)
    export_policy(run, params, tokenizer, workdir / "export")
    print(f"\nexport: {workdir / 'export'}")
  print(f"\nreport: {page}")
  return 0


def _tell_left_out(run: RunConfig, rows: list[dict]) -> None:
  """Says what of the data was not used."""
  bad_rows = run.task.bad_rows
  if bad_rows:
    print(f"\nbad rows that were skipped, {len(bad_rows)}:")
    shown = [_one_line(row) for row in bad_rows[:_SHOWN]]
    shown += ["..."] * (len(bad_rows) > _SHOWN)
    print("\n".join(f"  {row}" for row in shown))
  dropped = sum(row.get("data/dropped_prompts", 0) for row in rows)
  if dropped:
    print(f"\nproblems left out, whose prompts are over the limit: {dropped}")


def _tell(rows: list[dict], samples: list[dict]) -> None:
  evaluated = [row for row in rows if "eval/accuracy" in row]
  if not evaluated:  # metrics.jsonl was taken away from a run that had ended
    return
  ends = [("before", evaluated[0]), ("after", evaluated[-1])]
  told = [
    "unknown" if x is None else f"{x:.1%}" for x in (e["eval/accuracy"] for _, e in ends)
  ]
  print(
    f"\nheld-out accuracy: {told[0]} before reinforcement, {told[1]} after "
    f"{ends[1][1]['step']} steps"
  )
  for label, row in ends:
    _show(label, samples, row["step"])


def _tell_supervised(run: RunConfig, rows: list[dict], samples: list[dict]) -> None:
  """Of a run that ends before reinforcement: how good a policy that would begin from."""
  accuracy = rows[0].get("eval/accuracy") if rows else None
  told = "unknown" if accuracy is None else f"{accuracy:.1%}"
  print(f"\nheld-out accuracy: {told} after {run.supervised.steps} supervised steps")
  _show("samples", samples, step=0)


def _show(label: str, samples: list[dict], step: int) -> None:
  print(f"\n{label}:")
  held_out = [s for s in samples if s["split"] == "held_out" and s["step"] == step]
  for sample in held_out[:_SHOWN]:
    texts = _one_line(sample["prompt"]), _one_line(sample["completion"])
    print(f"  {' '.join(texts)}  [{_mark(sample)}]")


def _mark(sample: dict) -> str:
  if sample["right"]:
    return "right"
  if sample["reward"] is None:
    return "not scored"
  truth = _one_line(sample["ground_truth"])
  return f"wrong, it is {truth}" if truth else f"reward {sample['reward']:g}"


def _one_line(text: str) -> str:
  """Text for a terminal: what a model says may hold control characters."""
  return "".join(c if c.isprintable() else "\N{MIDDLE DOT}" for c in text.strip())


if __name__ == "__main__":
  program.run(main)
