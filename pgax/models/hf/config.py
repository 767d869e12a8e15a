"""Converts `config.json` of transformers to a `DecoderConfig` and back.

transformers reads the file: it knows the defaults and types of settings and their older
names, and one form of RoPE parameters. `families` maps what it read.
"""

import copy
import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pgax.models.config import DecoderConfig
from pgax.models.hf.families import (
  FAMILIES,
  Family,
  find_family,
  read_activation,
  write_activation,
)
from pgax.models.hf.rope import FULL, SLIDING, read_rope, write_rope

if TYPE_CHECKING:
  from transformers import PreTrainedConfig

_NOT_SAVED = ("dtype", "attention", "remat")  # fields that a checkpoint does not have
_REQUIRED = (  # transformers has defaults, which are no file's that lacks them
  "vocab_size",
  "hidden_size",
  "intermediate_size",
  "num_hidden_layers",
  "num_attention_heads",
)
_TOKENS = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"))


def _read(raw: Mapping[str, Any], family: Family) -> "PreTrainedConfig":
  """Reads the settings of an architecture, defaults included.

  Raises:
    ValueError: if a setting is missing, has a wrong type, or is not supported.
  """
  for name in _REQUIRED:
    if raw.get(name) is None:
      raise ValueError(f"config.json has no {name}")
  if raw.get("quantization_config") is not None:
    raise ValueError(
      "quantization_config is set; quantized weights are not supported. Give a directory "
      "of the model in float32, bfloat16 or float16"
    )
  if raw.get("use_bidirectional_attention"):
    raise ValueError("use_bidirectional_attention is true; the decoder is causal")
  from transformers import AutoConfig  # it imports torch, where that is installed

  given = copy.deepcopy(_TOKENS | dict(raw))  # it is changed
  given.pop("model_type", None)
  try:
    config = AutoConfig.for_model(family.model_type, **given)
  except Exception as error:  # of many kinds, with no base but this
    message = " ".join(str(error.args[0] if error.args else error).split())
    raise ValueError(f"transformers can't read it: {message}") from None
  for name, only in family.only.items():
    value = getattr(config, name)
    if value is not None and value != only:
      raise ValueError(
        f"{name} is {value!r}; the only supported value for {family.architecture} is "
        f"{only!r}"
      )
  return config


def _sliding(config: "PreTrainedConfig", family: Family) -> dict[str, Any]:
  """Returns the window and the sliding layers; no window if no layer is sliding."""
  none = {"sliding_window": 0, "sliding_layers": ()}
  window = config.sliding_window if family.windowed else 0
  if not window:
    return none
  kinds = [SLIDING] * config.num_hidden_layers
  if family.layer_types:
    kinds = config.layer_types
  unknown = sorted(set(kinds) - {SLIDING, FULL})
  if unknown:
    raise ValueError(f"layer_types has {unknown[0]}; it may have {SLIDING} and {FULL}")
  sliding = tuple(kind == SLIDING for kind in kinds)
  if not any(sliding):
    return none
  return {"sliding_window": window, "sliding_layers": () if all(sliding) else sliding}


def _rope_layers(config: "PreTrainedConfig", family: Family) -> tuple[bool, ...]:
  """Returns which layers have RoPE; empty for all of them."""
  if not family.unrotated:
    return ()
  # Despite its name, 1 is for a layer with RoPE.
  rotated = tuple(bool(x) for x in config.no_rope_layers[: config.num_hidden_layers])
  return () if all(rotated) else rotated


def from_hf(raw: Mapping[str, Any]) -> DecoderConfig:
  """Converts a `config.json` of transformers to a `DecoderConfig`.

  Args:
    raw: contents of the file, with the names of transformers 5 (`rope_parameters`) or the
      older ones (`rope_theta`, `rope_scaling`).

  Returns:
    A `DecoderConfig` that computes in float32.

  Raises:
    ValueError: if the architecture is not supported, a setting is missing or has a wrong
      type, or the decoder has no equivalent of a setting; the message names it.
  """
  family = find_family(raw)
  if family.model_type == "mistral" and raw.get("layer_types") is not None:
    return from_hf(dict(raw) | {"architectures": None, "model_type": "ministral"})
  c = _read(raw, family)
  sliding, head_dim = _sliding(c, family), getattr(c, "head_dim", None)
  fields = {
    "vocab_size": c.vocab_size,
    "num_layers": c.num_hidden_layers,
    "embed_dim": c.hidden_size,
    "num_heads": c.num_attention_heads,
    "num_kv_heads": c.num_key_value_heads,
    "head_dim": c.hidden_size // c.num_attention_heads if head_dim is None else head_dim,
    "mlp_dim": c.intermediate_size,
    "norm_eps": c.rms_norm_eps,
    "tie_embeddings": c.tie_word_embeddings,
    "scale_embeddings": False,
    "activation": read_activation(family.activation, getattr(c, family.activation), family),
    "rope_layers": _rope_layers(c, family),
  }
  fields |= sliding | read_rope(c, family, bool(sliding["sliding_window"]))
  fields |= family.fixed
  for setting in family.settings:
    fields[setting.field] = setting.read(getattr(c, setting.name))
  return DecoderConfig(**fields)


def _write(config: DecoderConfig, family: Family) -> dict[str, Any]:
  """Writes the settings that the architecture has; it may not have all of them."""
  c = config
  raw = {
    "architectures": [family.architecture],
    "model_type": family.model_type,
    "vocab_size": c.vocab_size,
    "num_hidden_layers": c.num_layers,
    "hidden_size": c.embed_dim,
    "num_attention_heads": c.num_heads,
    "num_key_value_heads": c.num_kv_heads,
    "head_dim": c.head_dim,
    "intermediate_size": c.mlp_dim,
    "rms_norm_eps": c.norm_eps,
    "tie_word_embeddings": c.tie_embeddings,
  }
  raw |= write_activation(c.activation, family) | family.only
  values = vars(c) | {"query_scalar": c.query_scalar or float(c.head_dim)}
  for setting in family.settings:
    raw[setting.name] = setting.write(values[setting.field])
  if family.windowed:
    raw["sliding_window"] = c.sliding_window or None
  if family.switched:
    raw["use_sliding_window"] = c.sliding_window > 0
  if family.layer_types:
    raw["layer_types"] = [SLIDING if sliding else FULL for sliding in c.is_sliding]
  if family.unrotated:
    raw["no_rope_layers"] = [int(x) for x in c.rope_layers or (True,) * c.num_layers]
  return raw | write_rope(config, family)


def differing_fields(config: DecoderConfig, other: DecoderConfig) -> list[str]:
  """Returns the names of the saved fields in which two configurations differ."""
  names = [field.name for field in dataclasses.fields(config)]
  fields = [name for name in names if name not in _NOT_SAVED]
  return [name for name in fields if getattr(config, name) != getattr(other, name)]


def to_hf(config: DecoderConfig) -> dict[str, Any]:
  """Converts a `DecoderConfig` to a `config.json` of transformers.

  The architecture is the first of `FAMILIES` that can express the decoder: a Mistral
  without a window becomes a Llama.

  Args:
    config: configuration of the decoder.

  Returns:
    Contents of the file, without settings that a decoder does not have, such as token ids.

  Raises:
    ValueError: if no architecture can express the decoder; the message names the closest
      one, and the fields in which it differs.
  """
  closest = None
  for family in FAMILIES:
    raw = _write(config, family)
    try:
      expressed = from_hf(raw)
    except ValueError:
      continue  # the architecture does not have a setting
    differing = differing_fields(config, expressed)
    if not differing:
      return raw
    if closest is None or len(differing) < len(closest[1]):
      closest = family.architecture, differing, expressed
  architecture, differing, expressed = closest
  differences = "; ".join(
    f"{name} is {getattr(config, name)}, not {getattr(expressed, name)}"
    for name in differing
  )
  raise ValueError(
    "no supported architecture of transformers can express this decoder; the closest is "
    f"{architecture}, but {differences}"
  )
