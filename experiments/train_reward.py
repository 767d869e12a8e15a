"""Trains a reward model: `python -m experiments.train_reward --workdir=DIR`.

The default config generates its pairs. For files of pairs, write a config with
`entry(preference_files, train_path=..., held_out_path=...)`; their lines are JSON objects
with `prompt`, `chosen` and `rejected`. Pass `DIR/export` to a run as
`--config.reward_model.path`. `--config.key=value` changes a setting. The same command
continues an interrupted run.
"""

from pathlib import Path

from absl import flags

from experiments import program
from experiments.config_files import CONFIGS
from experiments.config_flag import ConfigFlag
from pgax.distributed.hosts import shared_errors
from pgax.training import PreferenceConfig, build, to_json, train_on_preferences

_CONFIG = ConfigFlag(str(CONFIGS / "_preferences.py"), returns=PreferenceConfig)
_WORKDIR = flags.DEFINE_string("workdir", None, "Folder of the run.", required=True)
_LOGGERS = program.define_loggers()


def main() -> int:
  """Trains, and prints the accuracy on held-out pairs."""
  config, workdir = _CONFIG.value, Path(_WORKDIR.value)
  with shared_errors():
    run, record = build(config), to_json(config)
    tokenizer = program.tokenizer(run.model_path)
  result = train_on_preferences(run, tokenizer, workdir, record, loggers=_LOGGERS.value)
  if not result.finished:
    print(
      f"\nInterrupted at step {int(result.state.step)} of {run.steps}; a checkpoint is "
      "saved. Give the same command again to continue."
    )
    return 130
  print(f"\naccuracy on held-out pairs: {result.accuracy:.1%}")
  print(f"\nexport: {workdir / 'export'}")
  return 0


if __name__ == "__main__":
  program.run(main, processes=True, config=_CONFIG)
