"""Trains a policy: `python -m experiments.train --workdir=DIR [--config=FILE]`.

Any setting of the config file can be changed by `--config.key=value`. The same command
goes on with a run that was interrupted. See `experiments/configs/` for what there is.
"""

import json
from pathlib import Path

from absl import flags

from experiments import program
from experiments.configuration import freeze, to_json
from pgax.data import byte_tokenizer
from pgax.report import write_report
from pgax.training import train
from pgax.training.metrics import read_lines
from pgax.training.workdir import open_workdir

_CONFIG = program.define_config(str(program.CONFIGS / "grpo.py"))
_WORKDIR = flags.DEFINE_string("workdir", None, "Folder of the run.", required=True)
_SHOWN = 4


def main() -> int:
  """Does the run, and tells where it started and where it arrived."""
  config, workdir = _CONFIG.value, Path(_WORKDIR.value)
  run = freeze(config)
  # Once through JSON, so that what is compared is what a file can hold.
  open_workdir(workdir, json.loads(json.dumps(to_json(config))))
  tokenizer = byte_tokenizer()
  tokenizer.save_pretrained(workdir / "tokenizer")
  result = train(run, tokenizer, workdir)
  rows, samples = (read_lines(workdir / f"{x}.jsonl") for x in ("metrics", "samples"))
  page = write_report(rows, samples, f"{run.name}, seed {run.seed}", workdir / "report")
  if not result.finished:
    print(
      f"\nInterrupted at step {result.step} of {run.steps}; a checkpoint is saved. Give "
      "the same command again to go on."
    )
    return 130
  _tell(rows, samples)
  print(f"\nreport: {page}")
  return 0


def _tell(rows: list[dict], samples: list[dict]) -> None:
  evaluated = [row for row in rows if row.get("eval/accuracy") is not None]
  first, last = evaluated[0], evaluated[-1]
  print(
    f"\nheld-out accuracy: {first['eval/accuracy']:.1%} after the warm start, "
    f"{last['eval/accuracy']:.1%} after {last['step']} steps"
  )
  for label, step in (("before", first["step"]), ("after", last["step"])):
    print(f"\n{label}:")
    held_out = [s for s in samples if s["split"] == "held_out" and s["step"] == step]
    for sample in held_out[:_SHOWN]:
      mark = "right" if sample["reward"] == 1 else f"wrong, it is {sample['ground_truth']}"
      print(f"  {_one_line(sample['prompt'])} {_one_line(sample['completion'])}  [{mark}]")


def _one_line(text: str) -> str:
  """Text for a terminal: what a model says may hold control characters."""
  return "".join(c if c.isprintable() else "\N{MIDDLE DOT}" for c in text.strip())


if __name__ == "__main__":
  program.run(main)
