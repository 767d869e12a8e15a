"""Problems, tokens and batches."""

from pgax.data.pipeline import batches
from pgax.data.prompts import CollateDemonstrations, CollatePrompts
from pgax.data.sources import gsm8k
from pgax.data.tasks import Task, addition
from pgax.data.tokenizer import byte_tokenizer, load_tokenizer

__all__ = [
  "CollateDemonstrations",
  "CollatePrompts",
  "Task",
  "addition",
  "batches",
  "byte_tokenizer",
  "gsm8k",
  "load_tokenizer",
]
