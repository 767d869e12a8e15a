"""Checkpoint directories of transformers, read and written without torch."""

from pgax.models.hf.config import FAMILIES, from_hf, to_hf
from pgax.models.hf.load import check, eos_ids, load_config, load_params, saved_dtype
from pgax.models.hf.save import DTYPES, save
from pgax.models.hf.scorer import (
  check_scorer,
  load_scorer,
  load_scorer_config,
  save_scorer,
)

__all__ = [
  "DTYPES",
  "FAMILIES",
  "check",
  "check_scorer",
  "eos_ids",
  "from_hf",
  "load_config",
  "load_params",
  "load_scorer",
  "load_scorer_config",
  "save",
  "save_scorer",
  "saved_dtype",
  "to_hf",
]
