"""Sequence scorers as transformers keeps them: `*ForSequenceClassification`, one label."""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from transformers import PreTrainedTokenizerBase

from pgax.models.config import DecoderConfig
from pgax.models.heads import DECODER, headless
from pgax.models.hf.config import FAMILIES, from_hf, same_checkpoint, to_hf
from pgax.models.hf.files import CONFIG, Checkpoint, open_checkpoint, read_json
from pgax.models.hf.load import check_tensors, read_tensors
from pgax.models.hf.names import Tensor, tensors
from pgax.models.hf.save import write
from pgax.types import PyTree

_SCORE, _HEAD, _BIAS = "score.weight", "head", "bias"
_ONE_LABEL = {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}


def load_reward_model_config(path: Path) -> DecoderConfig:
  """The decoder of a sequence scorer's directory.

  Args:
    path: of the directory, with `config.json`.

  Returns:
    A `DecoderConfig` without an unembedding, computing in float32.

  Raises:
    ValueError: if the file can't be read, or is of anything but a known scorer; it names
      the file and what is not known.
  """
  path = Path(path) / CONFIG
  raw = read_json(path)
  try:
    return _from_hf(raw)
  except ValueError as error:
    raise ValueError(f"{path}: {error}") from None


def _from_hf(raw: dict[str, Any]) -> DecoderConfig:
  (named, *_) = raw.get("architectures") or [None]
  for family in FAMILIES:
    if named == family.reward_model:
      return headless(from_hf(raw | {"architectures": [family.architecture]}))
  known = ", ".join(family.reward_model for family in FAMILIES)
  raise ValueError(f"the architecture {named} is no known scorer; known are {known}")


def _tensors(config: DecoderConfig) -> list[Tensor]:
  """Every tensor of a scorer's checkpoint."""
  inner = [dataclasses.replace(t, path=(DECODER, *t.path)) for t in tensors(config)]
  return [*inner, Tensor(_SCORE, (_HEAD,), (config.embed_dim,), inputs=1)]


def check_reward_model(path: Path, config: DecoderConfig) -> None:
  """Makes sure that `load_reward_model` will work, by names and shapes alone.

  Args:
    path: of the directory.
    config: from `load_reward_model_config`.

  Raises:
    ValueError: as `load_reward_model` does.
  """
  _checked(path, config)


def _checked(path: Path, config: DecoderConfig) -> tuple[Checkpoint, list[Tensor]]:
  checkpoint, wanted = open_checkpoint(Path(path)), _tensors(config)
  labels = checkpoint.shapes.get(_SCORE, (1,))[0]
  if labels != 1:
    raise ValueError(
      f"tensor {_SCORE} in {path} has {labels} labels; a sequence scorer has one"
    )
  check_tensors(checkpoint, wanted, config)
  return checkpoint, wanted


def load_reward_model(
  path: Path, config: DecoderConfig, shardings: PyTree, dtype: jnp.dtype = jnp.float32
) -> PyTree:
  """The parameters of a sequence scorer's directory.

  Args:
    path: of the directory, with `model.safetensors` or its parts.
    config: from `load_reward_model_config`.
    shardings: of the parameters of a `ScalarDecoder`, from `partitioning.param_shardings`.
    dtype: of the parameters.

  Returns:
    Parameters of a `ScalarDecoder`; the bias, which the files have none of, is 0.

  Raises:
    ValueError: as `load_params` does, and if there is more than one label.
  """
  checkpoint, wanted = _checked(path, config)
  params = read_tensors(checkpoint, wanted, shardings["params"], dtype)
  bias = jax.device_put(jnp.zeros((), dtype), shardings["params"][_BIAS])
  return {"params": params | {_BIAS: bias}}


def save_reward_model(
  path: Path,
  config: DecoderConfig,
  params: PyTree,
  tokenizer: PreTrainedTokenizerBase | None,
  source: Path | None = None,
  dtype: str = "float32",
  max_file_bytes: int = 5 * 10**9,
) -> None:
  """Writes a sequence scorer as a directory that transformers reads.

  Args:
    path: as for `save`.
    config: of the decoder.
    params: of a `ScalarDecoder` with a bias of 0, which transformers has none of.
    tokenizer: as for `save`.
    source: directory of the scorer, or of the language model, that it was trained from,
      whose `config.json` is kept; None for a new one.
    dtype: as for `save`.
    max_file_bytes: as for `save`.

  Raises:
    ValueError: as `save` does, and if the bias is not 0.
  """
  inner = dict(params["params"])
  bias = float(inner.pop(_BIAS))
  if bias:
    raise ValueError(f"the head's bias is {bias}; transformers has none, so it must be 0")
  config = headless(config)
  raw = to_hf(config) if source is None else read_json(Path(source) / CONFIG)
  scorers = {family.architecture: family.reward_model for family in FAMILIES}
  (named, *_) = raw.get("architectures") or [None]
  raw |= {"architectures": [scorers.get(named, named)], "dtype": dtype} | _ONE_LABEL
  raw.pop("torch_dtype", None)  # the older name would contradict
  if raw.get("pad_token_id") is None:  # without it transformers scores one row at a time
    raw["pad_token_id"] = getattr(tokenizer, "pad_token_id", None)
  differing = same_checkpoint(config, _from_hf(raw))
  if differing:
    raise ValueError(f"{source} is of another model: {', '.join(differing)} differ")
  wanted = _tensors(config)
  write(path, raw, wanted, {"params": inner}, tokenizer, dtype, max_file_bytes)
