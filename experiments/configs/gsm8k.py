"""GRPO on grade-school math (GSM8K, arXiv 2110.14168): real text through every part.

Command:
  python -m experiments.train --config=experiments/configs/gsm8k.py --workdir=runs/gsm8k
Time: about half a minute on two server cores.
Expect: 0 %. The default model has 0.1 M parameters and reads bytes; it solves none of these
problems. The config shows that long prompts of varying length, answers after `####` and the
report work. By default it reads the excerpt for the tests; set `--config.task.train_path` and
`--config.task.held_out_path` to the full files.
"""

from ml_collections import ConfigDict

from experiments.configuration import entry, run_config
from pgax import algorithms
from pgax.rewards import final_answer
from pgax.tasks import gsm8k

EXCERPT = "tests/data/gsm8k"


def get_config() -> ConfigDict:
  """Makes the config."""
  task = entry(
    gsm8k,
    train_path=f"{EXCERPT}/train.jsonl",
    held_out_path=f"{EXCERPT}/test.jsonl",
  )
  config = run_config("gsm8k", task, final_answer, entry(algorithms.grpo))
  config.steps = 1
  config.optimizer.warmup_steps = 0  # otherwise the only step would have a rate of 0
  config.supervised.steps = 2
  config.supervised.batch_size = 2
  config.supervised.optimizer.learning_rate = 3e-3
  config.supervised.optimizer.warmup_steps = 1
  config.sampling.prompts_per_step = 4
  config.sampling.group_size = 2
  config.sampling.max_prompt_tokens = 1024
  config.sampling.max_completion_tokens = 1280
  config.evaluation.problems = 8
  config.samples_every = 1
  return config
