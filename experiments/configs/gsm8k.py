"""GRPO on grade-school math (GSM8K, arXiv 2110.14168): real text through every part.

Command:
  python -m experiments.train --config=experiments/configs/gsm8k.py --workdir=runs/gsm8k
Time: about half a minute on two server cores.
Expect: 0 %. The default model has 0.1 M parameters and reads bytes; it solves none of these
problems. The config shows that long prompts of varying length, answers after `####` and the
report work. By default it reads the excerpt for the tests; set `--config.task.train_path` and
`--config.task.held_out_path` to the full files.
"""

from pgax import algorithms
from pgax.rewards import final_answer
from pgax.tasks import gsm8k
from pgax.training import (
  EvaluationConfig,
  OptimizerConfig,
  RunConfig,
  SamplingConfig,
  SupervisedConfig,
  entry,
)

EXCERPT = {
  "train_path": "tests/data/gsm8k/train.jsonl",
  "held_out_path": "tests/data/gsm8k/test.jsonl",
}


def get_config() -> RunConfig:
  """Makes the config."""
  return RunConfig(
    name="gsm8k",
    task=entry(gsm8k, **EXCERPT),
    reward=final_answer,
    algorithm=entry(algorithms.grpo),
    steps=1,
    sampling=SamplingConfig(
      prompts_per_step=4, group_size=2, max_prompt_tokens=1024, max_completion_tokens=1280
    ),
    optimizer=OptimizerConfig(warmup_steps=0),  # or the only step would have a rate of 0
    supervised=SupervisedConfig(
      steps=2,
      batch_size=2,
      optimizer=OptimizerConfig(learning_rate=3e-3, warmup_steps=1),
    ),
    evaluation=EvaluationConfig(problems=8),
    samples_every=1,
  )
