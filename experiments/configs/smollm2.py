"""GRPO (arXiv 2402.03300) with LoRA on SmolLM2-135M-Instruct: small sums, in a chat.

A real model on a CPU: `python -m experiments.prepare_smollm2 --output=DIR` writes it. Asked
`7 + 4 = ? Answer:`, it often talks about the problem until its 12 tokens are used up.
The last number of a completion is its answer.

Command:
  python -m experiments.train --config=experiments/configs/smollm2.py --config.model.path=DIR --workdir=runs/smollm2
Time: 20 steps at 20 s of CPU each on one server core, after a minute of loading, compiling and evaluating; 4.2 GB of memory.
Expect: accuracy of 54.2 % of 48 held-out sums, and 68.8 and 85.4 % after 20 steps (seeds 0, 1); the reward at temperature 1 rises from 0.1 to 0.7.
"""

from pgax import algorithms
from pgax.rewards import NumericMatch
from pgax.tasks import small_sums
from pgax.training import (
  CheckpointConfig,
  DataConfig,
  EvaluationConfig,
  LoraConfig,
  OptimizerConfig,
  RunConfig,
  SamplingConfig,
  entry,
)


def get_config() -> RunConfig:
  """Makes the config."""
  return RunConfig(
    name="smollm2",
    task=entry(small_sums),
    reward=entry(NumericMatch),
    algorithm=entry(algorithms.grpo, kl_coef=0.0),  # no reference
    steps=20,
    data=DataConfig(chat_template=True, system_prompt="Calculator"),
    sampling=SamplingConfig(
      prompts_per_step=8, group_size=8, max_prompt_tokens=32, max_completion_tokens=12
    ),
    optimizer=OptimizerConfig(learning_rate=1e-3, warmup_steps=3),
    lora=LoraConfig(rank=16, alpha=32.0),
    evaluation=EvaluationConfig(every=10),
    checkpoints=CheckpointConfig(every=10),
  )
