"""Trains a policy: `python -m experiments.train --workdir=DIR [--config=FILE]`.

`--config.key=value` changes a setting of the config, and `--algorithm=NAME` takes a preset
instead of its algorithm. The same command continues an interrupted run. Configs are in
`experiments/configs/`.
"""

from pathlib import Path

from absl import flags

from experiments import program
from experiments.checkpoint import in_words
from experiments.config_files import CONFIGS
from experiments.config_flag import ConfigFlag
from pgax.algorithms import single_step_remark
from pgax.distributed.hosts import is_writer, shared_errors
from pgax.models import lora
from pgax.report import write_report
from pgax.runs.loggers import read_metrics, read_samples
from pgax.training import RunConfig, build, to_json, train
from pgax.training.policy import export_policy
from pgax.training.profile import parse_steps
from pgax.training.train import Result

_CONFIG = ConfigFlag(str(CONFIGS / "grpo.py"), algorithm=True)
_WORKDIR = flags.DEFINE_string("workdir", None, "Folder of the run.", required=True)
_LOGGERS = program.define_loggers()
_PROFILE = flags.DEFINE_string(
  "profile_steps", "", "Steps to write a trace of, such as 3:5, for xprof or Perfetto."
)
_SHOWN = 4


def main() -> int:
  """Trains, and prints the accuracy before and after."""
  config, workdir = _CONFIG.value, Path(_WORKDIR.value)
  with shared_errors():
    profile_steps = parse_steps(_PROFILE.value)
    run, record = build(config), to_json(config)
    tokenizer = program.tokenizer(run.model_path)
  if remark := single_step_remark(run.trained_algorithm):
    print(f"remark: {remark}", flush=True)
  result = train(
    run, tokenizer, workdir, record, loggers=_LOGGERS.value, profile_steps=profile_steps
  )
  page = _report(run, workdir, result) if is_writer() else None
  if not result.finished:
    return 130
  if run.model_path:
    params = lora.merged(run.lora, result.state.base, result.state.params)
    source = Path(run.model_path)
    export_policy(run.model, params, tokenizer, source, workdir / "export")
    print(f"\nexport: {workdir / 'export'}")
  print(f"\nreport: {page}")
  return 0


def _report(run: RunConfig, workdir: Path, result: Result) -> Path:
  """Writes the report, and prints the result or how far an interrupted run is."""
  rows, supervised = read_metrics(workdir), read_metrics(workdir, "supervised")
  samples = read_samples(workdir)
  title = f"{run.name}, seed {run.seed}"
  page = write_report(rows, samples, title, workdir / "report", supervised)
  if not result.finished:
    print(
      f"\nInterrupted at {in_words(result.progress, run)}; a checkpoint is saved. Give the "
      "same command again to continue."
    )
    return page
  _print_left_out(run, rows)
  if run.steps:
    _print_result(rows, samples)
  else:
    _print_supervised(run, rows, samples)
  return page


def _print_left_out(run: RunConfig, rows: list[dict]) -> None:
  """Prints which data was not used."""
  bad_rows = run.task.bad_rows
  if bad_rows:
    print(f"\n{len(bad_rows)} bad rows were skipped:")
    shown = [_one_line(row) for row in bad_rows[:_SHOWN]]
    shown += ["..."] * (len(bad_rows) > _SHOWN)
    print("\n".join(f"  {row}" for row in shown))
  dropped = sum(row.get("data/dropped_prompts", 0) for row in rows)
  if dropped:
    print(f"\nproblems left out because their prompts are over the limit: {dropped}")


def _print_result(rows: list[dict], samples: list[dict]) -> None:
  evaluated = [row for row in rows if "eval/accuracy" in row]
  if not evaluated:  # metrics.jsonl of the finished run was removed
    return
  ends = [("before", evaluated[0]), ("after", evaluated[-1])]
  before, after = (_percent(row["eval/accuracy"]) for _, row in ends)
  print(
    f"\nheld-out accuracy: {before} before reinforcement, {after} after "
    f"{ends[1][1]['step']} steps"
  )
  for label, row in ends:
    _print_samples(label, samples, row["step"])


def _print_supervised(run: RunConfig, rows: list[dict], samples: list[dict]) -> None:
  """Prints the result of a run that ends with its supervised stage."""
  accuracy = _percent(rows[0].get("eval/accuracy") if rows else None)
  print(f"\nheld-out accuracy: {accuracy} after {run.supervised.steps} supervised steps")
  _print_samples("samples", samples, step=0)


def _print_samples(label: str, samples: list[dict], step: int) -> None:
  print(f"\n{label}:")
  held_out = [s for s in samples if s["split"] == "held_out" and s["step"] == step]
  for sample in held_out[:_SHOWN]:
    texts = _one_line(sample["prompt"]), _one_line(sample["completion"])
    print(f"  {' '.join(texts)}  [{_mark(sample)}]")


def _percent(accuracy: float | None) -> str:
  return "unknown" if accuracy is None else f"{accuracy:.1%}"


def _mark(sample: dict) -> str:
  if sample["right"]:
    return "right"
  if sample["reward"] is None:
    return "not scored"
  truth = _one_line(sample["ground_truth"])
  return f"wrong, it is {truth}" if truth else f"reward {sample['reward']:g}"


def _one_line(text: str) -> str:
  """Makes text safe for a terminal: completions may have control characters."""
  return "".join(c if c.isprintable() else "\N{MIDDLE DOT}" for c in text.strip())


if __name__ == "__main__":
  program.run(main, processes=True, config=_CONFIG)
