"""Evaluation of policies: accuracy, pass@k, votes and solve rates."""

from pgax.evaluation.config import EvaluationConfig
from pgax.evaluation.evaluate import (
  Evaluation,
  evaluate,
  evaluation_key,
  evaluation_means,
  evaluation_metrics,
)

__all__ = [
  "Evaluation",
  "EvaluationConfig",
  "evaluate",
  "evaluation_key",
  "evaluation_means",
  "evaluation_metrics",
]
