"""R1-Zero on GSM8K (arXiv 2110.14168) from a Hugging Face directory, as CS336 starts it.

For a base model such as Qwen2.5-0.5B to 1.5B on a GPU or TPU, with the two original files
of GSM8K. The prompt is that of DeepSeek-R1 (arXiv 2501.12948), and the settings are those of
Stanford's CS336 (2025), assignment 5. Each rollout is used for one optimizer step; 200 steps
of 32 prompts are less than an epoch of the 7,473 problems. A microbatch is at most 8
completions of about one length; CS336 takes 2, which gives the same gradient. On D devices
set `--config.learner.microbatches` to 32 / D, and install
`.[math]` for the reward.

Command:
  python -m experiments.train --config=experiments/configs/gsm8k_r1_zero.py --config.model.path=DIR --config.task.train_path=train.jsonl --config.task.held_out_path=test.jsonl --workdir=runs/gsm8k_r1_zero
Time: not measured at this size.
Expect: not measured at this size. A small random model stays at 0 %, which shows that all parts work.
"""

from ml_collections import ConfigDict

from experiments.configs.gsm8k import EXCERPT
from experiments.configuration import entry, run_config
from pgax import algorithms
from pgax.data.templates import R1_ZERO
from pgax.rewards import R1Zero
from pgax.tasks import gsm8k


def get_config() -> ConfigDict:
  """Makes the config."""
  task = entry(
    gsm8k,
    train_path=f"{EXCERPT}/train.jsonl",
    held_out_path=f"{EXCERPT}/test.jsonl",
    template=R1_ZERO,
  )
  # On policy a clip never acts. No reference, and the standard deviation of the sample.
  algorithm = entry(algorithms.grpo, kl_coef=0.0, ddof=1)
  config = run_config("gsm8k_r1_zero", task, entry(R1Zero), algorithm)
  config.optimizer.learning_rate = 1e-5
  config.optimizer.warmup_steps = 0
  config.optimizer.b1, config.optimizer.b2 = 0.9, 0.95
  config.optimizer.weight_decay = 0.0
  config.optimizer.clip_norm = 1.0
  config.sampling.prompts_per_step, config.sampling.group_size = 32, 8
  config.sampling.temperature = 1.0
  config.sampling.max_prompt_tokens = 512
  config.sampling.min_tokens, config.sampling.max_completion_tokens = 4, 1024
  config.sampling.stop_strings = ("</answer>",)
  config.learner.microbatches = 32
  config.steps, config.evaluation.every = 200, 10
  config.evaluation.problems = 1319
  config.evaluation.temperature = 1.0  # as in the assignment, not greedily
  config.scoring.workers = 2
  return config
