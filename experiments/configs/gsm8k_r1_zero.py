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

from experiments.configs.gsm8k import EXCERPT
from pgax import algorithms
from pgax.data.templates import R1_ZERO
from pgax.rewards import R1Zero
from pgax.tasks import gsm8k
from pgax.training import (
  EvaluationConfig,
  LearnerConfig,
  OptimizerConfig,
  RunConfig,
  SamplingConfig,
  ScoringConfig,
  entry,
)


def get_config() -> RunConfig:
  """Makes the config."""
  return RunConfig(
    name="gsm8k_r1_zero",
    task=entry(gsm8k, **EXCERPT, template=R1_ZERO),
    reward=entry(R1Zero),
    # On policy a clip never acts. No reference, and the sample's standard deviation.
    algorithm=entry(algorithms.grpo, kl_coef=0.0, ddof=1),
    steps=200,
    sampling=SamplingConfig(
      prompts_per_step=32,
      group_size=8,
      max_prompt_tokens=512,
      max_completion_tokens=1024,
      temperature=1.0,
      min_tokens=4,
      stop_strings=("</answer>",),
    ),
    scoring=ScoringConfig(workers=2),
    optimizer=OptimizerConfig(
      learning_rate=1e-5, warmup_steps=0, clip_norm=1.0, b1=0.9, b2=0.95, weight_decay=0.0
    ),
    learner=LearnerConfig(microbatches=32),
    # At temperature 1 as in the assignment, not greedily.
    evaluation=EvaluationConfig(every=10, problems=1319, temperature=1.0),
  )
