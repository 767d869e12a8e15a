"""Evaluates a checkpoint: `python -m experiments.evaluate --workdir=DIR`.

Prints a table of accuracy, pass@k, length, truncation and the scores of the reward, each
with its 95 % interval, and the same numbers as a line of JSON. By default one completion
per problem is decoded greedily; `--samples=8 --temperature=1` draws several, for pass@k and
majority@k. `--config=FILE` takes problems, reward and sampling settings, length limits
included, from another config. If that config has no chat template, prompts are rendered as
in the run.
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path

from absl import flags

from experiments import program
from experiments.checkpoint import load_checkpoint
from experiments.config_flag import ConfigFlag
from pgax.distributed.hosts import is_writer, shared_errors, wait_for_all
from pgax.errors import UserError
from pgax.evaluation import evaluate, evaluation_key
from pgax.evaluation.config import check_sampling
from pgax.ops.evaluation import Estimate
from pgax.rollout import open_reward_runner
from pgax.training.batches import prompt_collator

_CONFIG = ConfigFlag(None)
_WORKDIR = flags.DEFINE_string("workdir", None, "Folder of the run.", required=True)
_SPLIT = flags.DEFINE_enum(
  "split", "held_out", ["held_out", "train"], "Split of the problems."
)
_PROBLEMS = flags.DEFINE_integer(
  "problems", 1000, "Number of problems, the first ones; 0 for all.", lower_bound=0
)
_SAMPLES = flags.DEFINE_integer("samples", 1, "Completions per problem.")
_TEMPERATURE = flags.DEFINE_float(
  "temperature", 0.0, "Sampling temperature; 0 decodes greedily."
)
_SEED = flags.DEFINE_integer("seed", 0, "Random seed.", lower_bound=0)
_BATCH = flags.DEFINE_integer(
  "batch_size", 128, "Number of completions decoded at a time.", lower_bound=1
)
_OUTPUT = flags.DEFINE_string("output", None, "File to write the JSON to.")


def main() -> int:
  """Evaluates, and prints a table and a line of JSON."""
  workdir = Path(_WORKDIR.value)
  samples, temperature = _SAMPLES.value, _TEMPERATURE.value
  with shared_errors():
    output = program.output_file(_OUTPUT.value) if _OUTPUT.value is not None else None
    try:
      check_sampling(samples, temperature, "--")
    except ValueError as error:
      raise UserError(str(error)) from None
    checkpoint = load_checkpoint(workdir, _CONFIG.value)
  wait_for_all()
  run, policy = checkpoint.run, checkpoint.policy
  problems = run.task.train if _SPLIT.value == "train" else run.task.held_out
  count = min(_PROBLEMS.value or len(problems), len(problems))
  try:
    with open_reward_runner(run.reward, run.scoring) as runner:
      result = evaluate(
        checkpoint.sampler,
        policy.params,
        [problems[i] for i in range(count)],
        prompt_collator(run.data, policy.tokenizer, run.sampling.max_prompt_tokens),
        runner,
        _BATCH.value,
        evaluation_key(_SEED.value),
        samples=samples,
        temperature=temperature,
        extract_answer=run.evaluation.extract_answer,
      )
  except ValueError as error:  # such as a prompt over the limit
    raise UserError(str(error)) from error
  drawn = f"{samples} at temperature {temperature}" if temperature else "one, greedy"
  print(
    f"{workdir}, {checkpoint.progress}: {result.accuracy:.1%} of {result.problems} "
    f"problems of {run.name}/{_SPLIT.value}; completions of each: {drawn}"
  )
  print(_table(result.estimates))
  values = {
    "accuracy": _finite(result.accuracy),
    "stage": policy.progress.stage,
    "step": policy.progress.step,
    "problems": result.problems,
    "samples": samples,
    "temperature": temperature,
    "seed": _SEED.value,
    **checkpoint.counts,
    "estimates": {
      name: {end: _finite(x) for end, x in estimate._asdict().items()}
      for name, estimate in result.estimates.items()
    },
  }
  line = json.dumps(values, allow_nan=False)
  print(line)  # before the file, which a full disk may prevent
  if output and is_writer():
    _write(output, line)
  return 0


def _table(estimates: Mapping[str, Estimate]) -> str:
  """Formats a table with a row for each estimate."""
  width = max(map(len, estimates))
  rows = [f"{'':{width}} {'mean':>10} {'95 % interval':>21}"]
  rows += [
    f"{name:{width}} {x.mean:10.4f} {x.low:10.4f} {x.high:10.4f}"
    for name, x in estimates.items()
  ]
  return "\n".join(rows)


def _finite(value: float) -> float | None:
  """Replaces numbers that JSON does not have by None."""
  return value if math.isfinite(value) else None


def _write(path: Path, line: str) -> None:
  """Writes a file atomically: on failure the old one stays."""
  temporary = path.with_name(f".{path.name}")
  try:
    temporary.write_text(line + "\n", encoding="utf-8")
    temporary.replace(path)
  except OSError as error:
    raise UserError(f"--output={path} can't be written: {error.strerror}") from None


if __name__ == "__main__":
  program.run(main, processes=True, config=_CONFIG)
