"""GRPO (arXiv 2402.03300) on countdown: reach a number with two operands, by trial.

The demonstrator of the supervised start tries expressions such as `9*4=36 no`, and often
gives up before one is right. The reward depends on the answer alone. It teaches the policy
to keep trying, and to try promising expressions first.

Command:
  python -m experiments.train --config=experiments/configs/countdown.py --workdir=runs/countdown
Time: 60 steps at 1.0 s of CPU each on two server cores, after a warm start of a minute and a half; 2 to 3 minutes in all.
Expect: accuracy of 29.3 and 25.0 % after the warm start, and 72.3 and 76.6 % after 60 steps (seeds 0, 1). From step 10 on it varies between 68 and 77 %: the 256 held-out problems are 94 distinct ones.
"""

from experiments.configs.grpo import warm_start
from pgax import algorithms
from pgax.tasks import Countdown, countdown
from pgax.training import EvaluationConfig, RunConfig, SamplingConfig, entry


def get_config() -> RunConfig:
  """Makes the config."""
  return RunConfig(
    name="countdown",
    task=entry(countdown, operands=2, largest=20, patience=0.4, tries=4),
    reward=entry(Countdown),
    algorithm=entry(algorithms.grpo, epochs=2, minibatches=2),
    steps=60,
    sampling=SamplingConfig(max_prompt_tokens=14, max_completion_tokens=72),
    supervised=warm_start(steps=2000),
    evaluation=EvaluationConfig(every=5),
  )
