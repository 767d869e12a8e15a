"""Problems, tokens and batches."""

from pgax.data.pipeline import batches
from pgax.data.preferences import (
  Preferences,
  addition_preferences,
  preference_files,
)
from pgax.data.prompts import CollateDemonstrations, CollatePrompts
from pgax.data.sources import gsm8k
from pgax.data.tasks import Task, addition
from pgax.data.tokenizer import byte_tokenizer, load_tokenizer

__all__ = [
  "CollateDemonstrations",
  "CollatePrompts",
  "Preferences",
  "Task",
  "addition",
  "addition_preferences",
  "batches",
  "byte_tokenizer",
  "gsm8k",
  "load_tokenizer",
  "preference_files",
]
