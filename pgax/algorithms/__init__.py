"""Algorithms as values: `Algorithm`, its parts, and one function for every preset."""

from pgax.algorithms import parts
from pgax.algorithms.loss import LossSums, loss
from pgax.algorithms.prepare import prepare
from pgax.algorithms.presets import (
  cispo,
  dppo,
  dr_grpo,
  gmpo,
  grpo,
  gspo,
  maxrl,
  opo,
  reinforce,
  rloo,
  sapo,
)
from pgax.algorithms.spec import Algorithm, KLPenalty

__all__ = [
  "Algorithm",
  "KLPenalty",
  "LossSums",
  "cispo",
  "dppo",
  "dr_grpo",
  "gmpo",
  "grpo",
  "gspo",
  "loss",
  "maxrl",
  "opo",
  "parts",
  "prepare",
  "reinforce",
  "rloo",
  "sapo",
]
