"""Reward models in the format of transformers: `*ForSequenceClassification`, one label."""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from transformers import PreTrainedTokenizerBase

from pgax.models.config import DecoderConfig
from pgax.models.heads import DECODER, headless
from pgax.models.hf.config import differing_fields, from_hf, to_hf
from pgax.models.hf.families import FAMILIES, Family, Layout, find_family
from pgax.models.hf.files import CONFIG, Checkpoint, open_checkpoint, read_json
from pgax.models.hf.load import check_tensors, read_tensors
from pgax.models.hf.names import Tensor, tensors
from pgax.models.hf.save import write
from pgax.types import PyTree

_SCORE, _HEAD, _BIAS = "score.weight", "head", "bias"
_ONE_LABEL = {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}


def load_reward_model_config(path: Path) -> DecoderConfig:
  """Loads the decoder configuration of a reward model's directory.

  Args:
    path: directory with `config.json`.

  Returns:
    A `DecoderConfig` without an unembedding that computes in float32.

  Raises:
    ValueError: if the file can't be read, or the reward model is not supported; the message
      names the file and the setting.
  """
  path = Path(path) / CONFIG
  raw = read_json(path)
  try:
    return _from_hf(raw)
  except ValueError as error:
    raise ValueError(f"{path}: {error}") from None


def _from_hf(raw: dict[str, Any]) -> DecoderConfig:
  return headless(from_hf(raw | {"architectures": [_family(raw).architecture]}))


def _family(raw: dict[str, Any]) -> Family:
  """Finds the architecture under a classification head."""
  (name, *_) = raw.get("architectures") or [None]
  for family in FAMILIES:
    if name and name == family.reward_model:
      return family
  supported = ", ".join(x.reward_model for x in FAMILIES if x.reward_model)
  raise ValueError(
    f"architecture {name} is not a supported reward model; supported are {supported}"
  )


def _tensors(config: DecoderConfig, layout: Layout) -> list[Tensor]:
  """Lists the tensors of a reward model's checkpoint."""
  decoder = [
    dataclasses.replace(t, path=(DECODER, *t.path)) for t in tensors(config, layout)
  ]
  return [*decoder, Tensor(_SCORE, (_HEAD,), (config.embed_dim,), inputs=1)]


def check_reward_model(path: Path, config: DecoderConfig) -> None:
  """Checks that `load_reward_model` will succeed, by the names and shapes of tensors.

  Args:
    path: directory of the reward model.
    config: configuration of the decoder, from `load_reward_model_config`.

  Raises:
    ValueError: see `load_reward_model`.
  """
  _open_checked(path, config)


def _open_checked(path: Path, config: DecoderConfig) -> tuple[Checkpoint, list[Tensor]]:
  layout = _family(read_json(Path(path) / CONFIG)).layout
  checkpoint, expected = open_checkpoint(Path(path)), _tensors(config, layout)
  labels = checkpoint.shapes.get(_SCORE, (1,))[0]
  if labels != 1:
    raise ValueError(
      f"tensor {_SCORE} in {path} has {labels} labels; a reward model has one"
    )
  check_tensors(checkpoint, expected, config)
  return checkpoint, expected


def load_reward_model(
  path: Path, config: DecoderConfig, shardings: PyTree, dtype: jnp.dtype = jnp.float32
) -> PyTree:
  """Loads the parameters of a reward model's directory.

  Args:
    path: directory with `model.safetensors` or its shards.
    config: configuration of the decoder, from `load_reward_model_config`.
    shardings: shardings of a `ScalarDecoder`, from `partitioning.param_shardings`.
    dtype: dtype of the parameters.

  Returns:
    Parameters of a `ScalarDecoder`. The bias, which the files don't have, is 0.

  Raises:
    ValueError: see `load_params`; also if there is more than one label.
  """
  checkpoint, expected = _open_checked(path, config)
  params = read_tensors(checkpoint, expected, shardings["params"], dtype)
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
  """Saves a reward model as a directory that transformers can load.

  Args:
    path: directory to write; new or empty.
    config: configuration of the decoder.
    params: parameters of a `ScalarDecoder`. The bias must be 0, because transformers has
      none.
    tokenizer: tokenizer to save with the model, or None.
    source: directory of the reward model or language model that training started from,
      whose `config.json` is kept; None for a new `config.json`.
    dtype: dtype of the saved tensors, `float32`, `bfloat16` or `float16`.
    max_file_bytes: largest size of a file's tensors; a larger tensor has its own file.

  Raises:
    ValueError: see `save`; also if the bias is not 0.
  """
  inner = dict(params["params"])
  bias = float(inner.pop(_BIAS))
  if bias:
    raise ValueError(
      f"the bias of the head is {bias}; transformers has none, so it must be 0"
    )
  config = headless(config)
  raw = to_hf(config) if source is None else read_json(Path(source) / CONFIG)
  raw |= {"architectures": [_reward_model(raw)], "dtype": dtype} | _ONE_LABEL
  raw.pop("torch_dtype", None)  # the older name of dtype
  if raw.get("pad_token_id") is None:  # without it transformers scores one row at a time
    raw["pad_token_id"] = getattr(tokenizer, "pad_token_id", None)
  differing = differing_fields(config, _from_hf(raw))
  if differing:
    raise ValueError(f"{source} has another model: {', '.join(differing)} differ")
  expected = _tensors(config, _family(raw).layout)
  write(path, raw, expected, {"params": inner}, tokenizer, dtype, max_file_bytes)


def _reward_model(raw: dict[str, Any]) -> str:
  """Returns the class of a reward model on the decoder of a language or reward model."""
  (name, *_) = raw.get("architectures") or [None]
  if name in (family.reward_model for family in FAMILIES):
    return name
  family = find_family(raw)
  if not family.reward_model:
    raise ValueError(f"transformers has no reward model on {family.architecture}")
  return family.reward_model
