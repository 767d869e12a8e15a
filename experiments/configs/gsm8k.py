"""GRPO on grade-school maths (GSM8K, arXiv 2110.14168): real text through every part.

Command:
  python -m experiments.train --config=experiments/configs/gsm8k.py --workdir=runs/gsm8k
Time: about half a minute on two server cores.
Expect: 0 %. The default model has 0.1 M parameters and reads bytes; it solves none of these
problems. The config shows that long prompts of many lengths, answers behind `####` and the
report work. Without other files it reads the excerpt kept for the tests; give the whole by
`--config.task.train_path` and `--config.task.held_out_path`.
"""

from ml_collections import ConfigDict

from experiments.configuration import entry, run_config
from pgax import algorithms
from pgax.rewards import final_answer
from pgax.tasks import gsm8k

EXCERPT = "tests/data/gsm8k"


def get_config() -> ConfigDict:
  """The config, as absl's `--config` wants it."""
  task = entry(
    gsm8k,
    train_path=f"{EXCERPT}/train.jsonl",
    held_out_path=f"{EXCERPT}/test.jsonl",
  )
  config = run_config("gsm8k", task, final_answer, entry(algorithms.grpo))
  config.steps = 1
  config.optimizer.warmup_steps = 0  # or the one step would have a rate of 0
  config.supervised.steps = 2
  config.supervised.batch_size = 2
  config.supervised.optimizer.warmup_steps = 1
  config.supervised.optimizer.decay_steps = 0
  config.sampling.prompts = 4
  config.sampling.group = 2
  config.sampling.max_prompt_tokens = 1024
  config.sampling.max_tokens = 1280
  config.eval_problems = 8
  config.samples_every = 1
  return config
