"""GRPO (arXiv 2402.03300) with LoRA on SmolLM2-135M-Instruct: small sums, in a chat.

A real model on a CPU: `python -m experiments.prepare_smollm2 --output=DIR` writes it. Asked
`7 + 4 = ? Answer:`, it often talks about the problem until its 12 tokens are used up.
The last number of a completion is its answer.

Command:
  python -m experiments.train --config=experiments/configs/smollm2.py --config.model.path=DIR --workdir=runs/smollm2
Time: 20 steps at 20 s of CPU each on one server core, after a minute of loading, compiling and evaluating; 4.2 GB of memory.
Expect: accuracy of 54.2 % of 48 held-out sums, and 68.8 and 85.4 % after 20 steps (seeds 0, 1); the reward at temperature 1 rises from 0.1 to 0.7.
"""

from ml_collections import ConfigDict

from experiments.configuration import entry, run_config
from pgax import algorithms
from pgax.rewards import NumericMatch
from pgax.tasks import small_sums


def get_config() -> ConfigDict:
  """Makes the config."""
  algorithm = entry(algorithms.grpo, kl_coef=0.0)  # no reference
  config = run_config("smollm2", entry(small_sums), entry(NumericMatch), algorithm)
  config.data.chat_template, config.data.system_prompt = True, "Calculator"
  config.sampling.prompts_per_step, config.sampling.group_size = 8, 8
  config.sampling.max_prompt_tokens = 32
  config.sampling.max_completion_tokens = 12
  config.lora.rank, config.lora.alpha = 16, 32.0
  config.optimizer.learning_rate, config.optimizer.warmup_steps = 1e-3, 3
  config.steps, config.evaluation.every = 20, 10
  config.checkpoints.every = 10
  return config
