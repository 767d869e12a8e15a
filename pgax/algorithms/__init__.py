"""Algorithms as values: `Algorithm`, its parts, and one function for every preset."""

from pgax.algorithms import checks, filters, parts, presets
from pgax.algorithms.config import UpdateConfig
from pgax.algorithms.loss import LossSums, loss
from pgax.algorithms.numbers import Partitioned, combine, partition
from pgax.algorithms.prepare import prepare
from pgax.algorithms.presets import *
from pgax.algorithms.presets.schedule import with_schedule
from pgax.algorithms.remarks import single_step_remark
from pgax.algorithms.spec import (
  Algorithm,
  CriticSpec,
  DynamicSampling,
  EntropyBonus,
  KLPenalty,
  MovingAverage,
  PositiveNLL,
)

__all__ = [
  "Algorithm",
  "CriticSpec",
  "DynamicSampling",
  "EntropyBonus",
  "KLPenalty",
  "Partitioned",
  "LossSums",
  "MovingAverage",
  "PositiveNLL",
  "UpdateConfig",
  "checks",
  "filters",
  "combine",
  "partition",
  "loss",
  "parts",
  "prepare",
  "presets",
  "single_step_remark",
  "with_schedule",
  *presets.__all__,
]
