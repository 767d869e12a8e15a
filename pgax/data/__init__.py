"""Data: files to rows, rows to examples, examples to batches."""

from pgax.data.demonstrations import CollateDemonstrations, packed_batches
from pgax.data.fields import Fields
from pgax.data.mixture import mixture
from pgax.data.pipeline import batches
from pgax.data.preferences import Preferences, preference_files
from pgax.data.prompts import CollatePrompts
from pgax.data.records import json_lines
from pgax.data.solve_rates import filtered
from pgax.data.sources import from_rows
from pgax.data.tables import parquet, saved_dataset
from pgax.data.task import Task
from pgax.data.tensorflow_datasets import tfds
from pgax.data.tokenizer import byte_tokenizer, load_tokenizer

__all__ = [
  "CollateDemonstrations",
  "CollatePrompts",
  "Fields",
  "Preferences",
  "Task",
  "batches",
  "byte_tokenizer",
  "filtered",
  "from_rows",
  "json_lines",
  "load_tokenizer",
  "mixture",
  "packed_batches",
  "parquet",
  "preference_files",
  "saved_dataset",
  "tfds",
]
