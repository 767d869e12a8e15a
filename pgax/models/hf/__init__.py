"""Checkpoint directories of transformers, read and written without torch."""

from pgax.models.hf.config import FAMILIES, from_hf, to_hf
from pgax.models.hf.load import load_config, load_params
from pgax.models.hf.save import save

__all__ = ["FAMILIES", "from_hf", "load_config", "load_params", "save", "to_hf"]
