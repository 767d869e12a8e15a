"""Algorithms as values: `Algorithm`, its parts, and one function for every preset."""

from pgax.algorithms import parts
from pgax.algorithms.loss import LossSums, loss
from pgax.algorithms.prepare import prepare
from pgax.algorithms.presets import dr_grpo, grpo, reinforce, rloo
from pgax.algorithms.spec import Algorithm, KLPenalty

__all__ = [
  "Algorithm",
  "KLPenalty",
  "LossSums",
  "dr_grpo",
  "grpo",
  "loss",
  "parts",
  "prepare",
  "reinforce",
  "rloo",
]
