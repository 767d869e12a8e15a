"""Problems, tokens and batches."""

from pgax.tasks.countdown import countdown
from pgax.data.demonstrations import (
  CollateDemonstrations,
  DemonstrationRows,
  packed_batches,
)
from pgax.data.fields import Fields, GSM8KFields
from pgax.data.mixture import mixture
from pgax.data.pipeline import batches
from pgax.data.preferences import (
  Preferences,
  addition_preferences,
  preference_files,
)
from pgax.data.prompts import CollatePrompts
from pgax.tasks.reasoning_gym import reasoning_gym
from pgax.data.rows import json_lines
from pgax.data.solve_rates import filtered
from pgax.data.sources import from_rows, gsm8k
from pgax.data.tables import parquet, saved_dataset
from pgax.data.task import Task, addition
from pgax.data.tensorflow_datasets import tfds
from pgax.data.tokenizer import byte_tokenizer, load_tokenizer

__all__ = [
  "CollateDemonstrations",
  "CollatePrompts",
  "DemonstrationRows",
  "Fields",
  "GSM8KFields",
  "Preferences",
  "Task",
  "addition",
  "addition_preferences",
  "batches",
  "byte_tokenizer",
  "countdown",
  "filtered",
  "from_rows",
  "gsm8k",
  "json_lines",
  "load_tokenizer",
  "mixture",
  "packed_batches",
  "parquet",
  "preference_files",
  "reasoning_gym",
  "saved_dataset",
  "tfds",
]
