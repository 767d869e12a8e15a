"""Rewards: functions of prompt, completion and ground truth."""

from pgax.rewards.math import final_answer

__all__ = ["final_answer"]
