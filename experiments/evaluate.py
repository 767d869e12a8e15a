"""How good a checkpoint is: `python -m experiments.evaluate --workdir=DIR`.

Prints a table of accuracy, pass@k, length, truncation and the parts of the reward, each
with its 95 % interval, and the same as a line of JSON. `--samples=8 --temperature=1` draws
several completions of each problem, for pass@k and majority@k; without them there is one,
decoded greedily. The problems are those of the run itself, or, with `--config=FILE`, those
of another config, which then also gives the reward and the settings of sampling, the limits
on length among them. Without a chat template of its own, its prompts are rendered as those
of the run.
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path

from absl import flags

from experiments import program
from experiments.checkpoint import load_checkpoint
from pgax.ops.evaluation import Estimate
from pgax.training import UserError
from pgax.training.draws import check_draws
from pgax.training.evaluation import evaluate, evaluation_key
from pgax.training.problems import prompt_collator
from pgax.training.rollout import open_scorer

_CONFIG = program.define_config(None)
_WORKDIR = flags.DEFINE_string("workdir", None, "Folder of the run.", required=True)
_SPLIT = flags.DEFINE_enum("split", "held_out", ["held_out", "train"], "Which problems.")
_PROBLEMS = flags.DEFINE_integer(
  "problems", 1000, "How many problems, from the first on; 0 for all.", lower_bound=0
)
_SAMPLES = flags.DEFINE_integer("samples", 1, "Completions of each problem.")
_TEMPERATURE = flags.DEFINE_float("temperature", 0.0, "Of the policy; 0 is greedy.")
_SEED = flags.DEFINE_integer("seed", 0, "Of the random draws.", lower_bound=0)
_BATCH = flags.DEFINE_integer(
  "batch_size", 128, "Completions decoded at a time.", lower_bound=1
)
_OUTPUT = flags.DEFINE_string("output", None, "File to write the JSON to.")


def main() -> int:
  """Evaluates, and prints a table to read and a line of JSON."""
  workdir = Path(_WORKDIR.value)
  output = program.output_file(_OUTPUT.value) if _OUTPUT.value is not None else None
  samples, temperature = _SAMPLES.value, _TEMPERATURE.value
  try:
    check_draws(samples, temperature, "--")
  except ValueError as error:
    raise UserError(str(error)) from None
  found = load_checkpoint(workdir, _CONFIG.value)
  run, policy = found.run, found.policy
  problems = run.task.train if _SPLIT.value == "train" else run.task.held_out
  count = min(_PROBLEMS.value or len(problems), len(problems))
  try:
    with open_scorer(run.reward, run.scoring) as scorer:
      result = evaluate(
        found.sampler,
        policy.params,
        [problems[i] for i in range(count)],
        prompt_collator(run, policy.tokenizer),
        scorer,
        _BATCH.value,
        evaluation_key(_SEED.value),
        samples=samples,
        temperature=temperature,
        answer=run.answer,
      )
  except ValueError as error:  # such as a prompt over the limit
    raise UserError(str(error)) from error
  drawn = f"{samples} at temperature {temperature}" if temperature else "one, greedy"
  print(
    f"{workdir}, {found.place}: {result.accuracy:.1%} of {result.problems} problems of "
    f"{run.name}/{_SPLIT.value}; completions of each: {drawn}"
  )
  print(_table(result.estimates))
  told = {
    "accuracy": _finite(result.accuracy),
    "step": policy.step,
    "problems": result.problems,
    "samples": samples,
    "temperature": temperature,
    "seed": _SEED.value,
    **found.counts,
    "estimates": {
      name: {end: _finite(x) for end, x in estimate._asdict().items()}
      for name, estimate in result.estimates.items()
    },
  }
  line = json.dumps(told, allow_nan=False)
  print(line)  # first, so that a full disk does not take it away
  if output:
    _write(output, line)
  return 0


def _table(estimates: Mapping[str, Estimate]) -> str:
  """A line for each estimate, and one of titles."""
  width = max(map(len, estimates))
  rows = [f"{'':{width}} {'mean':>10} {'95 % interval':>21}"]
  rows += [
    f"{name:{width}} {x.mean:10.4f} {x.low:10.4f} {x.high:10.4f}"
    for name, x in estimates.items()
  ]
  return "\n".join(rows)


def _finite(value: float) -> float | None:
  """JSON has no nan: what is not finite is null."""
  return value if math.isfinite(value) else None


def _write(path: Path, line: str) -> None:
  """Writes a file as a whole, or leaves what was there."""
  temporary = path.with_name(f".{path.name}")
  try:
    temporary.write_text(line + "\n", encoding="utf-8")
    temporary.replace(path)
  except OSError as error:
    raise UserError(f"--output={path} can't be written: {error.strerror}") from None


if __name__ == "__main__":
  program.run(main)
