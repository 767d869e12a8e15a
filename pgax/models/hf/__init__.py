"""Reads and writes checkpoint directories of transformers, without torch."""

from pgax.models.hf.config import from_hf, to_hf
from pgax.models.hf.families import FAMILIES
from pgax.models.hf.load import (
  check,
  check_length,
  eos_ids,
  load_config,
  load_params,
  saved_dtype,
)
from pgax.models.hf.reward_model import (
  check_reward_model,
  load_reward_model,
  load_reward_model_config,
  save_reward_model,
)
from pgax.models.hf.save import DTYPES, save

__all__ = [
  "DTYPES",
  "FAMILIES",
  "check",
  "check_length",
  "check_reward_model",
  "eos_ids",
  "from_hf",
  "load_config",
  "load_params",
  "load_reward_model",
  "load_reward_model_config",
  "save",
  "save_reward_model",
  "saved_dtype",
  "to_hf",
]
