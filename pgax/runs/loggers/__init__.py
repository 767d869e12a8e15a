"""Loggers: where the metrics and samples of a run go."""

from pgax.runs.loggers.built_in import BUILT_IN, Loggers, check_loggers, open_loggers
from pgax.runs.loggers.csv import Csv
from pgax.runs.loggers.json_lines import JsonLines
from pgax.runs.loggers.mlflow import MLflow
from pgax.runs.loggers.protocol import SUPERVISED, Logger, by_stage
from pgax.runs.loggers.schema import read_metrics, read_samples
from pgax.runs.loggers.tensorboard import TensorBoard
from pgax.runs.loggers.weights_and_biases import WeightsAndBiases

__all__ = [
  "BUILT_IN",
  "SUPERVISED",
  "Csv",
  "JsonLines",
  "Logger",
  "Loggers",
  "MLflow",
  "TensorBoard",
  "WeightsAndBiases",
  "by_stage",
  "check_loggers",
  "open_loggers",
  "read_metrics",
  "read_samples",
]
