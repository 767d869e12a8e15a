"""R1-Zero on GSM8K from a Hugging Face directory, as CS336 (2025), assignment 5, starts it.

Give the two original files of GSM8K, and a base model such as Qwen2.5-Math-1.5B or
Qwen2.5-0.5B, on a GPU or TPU. The prompt is that of DeepSeek-R1 (arXiv 2501.12948); the
reward is 1 for a right answer in its format, and 0 else. One optimizer step a rollout of 32
prompts with 8 completions, so that the policy learns from its own completions only; 200
steps take 6,400 of the 7,473 training problems. A microbatch is a group of 8 completions,
the smallest that there is; CS336 takes 2, and the gradient is the same.

Command:
  python -m experiments.train --config=experiments/configs/gsm8k_r1_zero.py --config.model.path=DIR --config.task.train_path=train.jsonl --config.task.held_out_path=test.jsonl --workdir=runs/gsm8k_r1_zero
Time: not measured at its size: it needs a GPU or TPU.
Expect: not measured at its size; with a random model 0 %.
"""

from ml_collections import ConfigDict

from experiments.configs.gsm8k import EXCERPT
from experiments.configuration import entry, run_config
from pgax import algorithms
from pgax.data import gsm8k
from pgax.data.templates import R1_ZERO
from pgax.rewards import R1Zero


def get_config() -> ConfigDict:
  """The config, as absl's `--config` wants it."""
  task = entry(
    gsm8k,
    train_path=f"{EXCERPT}/train.jsonl",
    held_out_path=f"{EXCERPT}/test.jsonl",
    template=R1_ZERO,
  )
  # On policy a clip never acts; there is no reference, and the deviation is the sample's.
  algorithm = entry(algorithms.grpo, kl_coef=0.0, ddof=1)
  config = run_config("gsm8k_r1_zero", task, entry(R1Zero), algorithm)
  config.warm_start.steps = 0
  config.optimizer.learning_rate = 1e-5
  config.optimizer.warmup_steps = 0
  config.optimizer.b1, config.optimizer.b2 = 0.9, 0.95
  config.optimizer.weight_decay = 0.0
  config.optimizer.clip_norm = 1.0
  config.sampling.prompts, config.sampling.group = 32, 8
  config.sampling.temperature = 1.0
  config.sampling.max_prompt_tokens = 512
  config.sampling.max_tokens = 1024
  config.microbatches = 32
  config.steps, config.eval_every = 200, 10
  config.eval_problems = 1319
  config.scoring.workers = 2
  return config
