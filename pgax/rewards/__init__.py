"""Rewards: functions of prompt, completion and ground truth."""

from pgax.rewards.math import final_answer
from pgax.rewards.steps import addition_steps

__all__ = ["addition_steps", "final_answer"]
