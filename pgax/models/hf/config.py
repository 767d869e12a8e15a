"""Converts `config.json` of transformers to a `DecoderConfig` and back."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from pgax.models.config import DecoderConfig
from pgax.models.hf.families import (
  FAMILIES,
  Family,
  find_family,
  read_activation,
  write_activation,
)
from pgax.models.hf.rope import FULL, SLIDING, read_rope, write_rope
from pgax.models.hf.settings import check_settings

_NOT_SAVED = ("dtype", "attention", "remat")  # fields that a checkpoint does not have


def _required(raw: Mapping[str, Any], name: str) -> Any:
  if raw.get(name) is None:
    raise ValueError(f"config.json has no {name}")
  return raw[name]


def _sliding(raw: Mapping[str, Any], family: Family, layers: int) -> dict[str, Any]:
  """Returns the window and the sliding layers; no window if no layer is sliding."""
  window = raw.get("sliding_window", family.window) if family.window != 0 else 0
  if family.switched and not raw.get("use_sliding_window", False):
    window = 0
  sliding = _sliding_layers(raw, family, layers)
  if not window or not any(sliding):
    return {"sliding_window": 0, "sliding_layers": ()}
  if len(sliding) != layers:
    raise ValueError(
      f"layer_types has {len(sliding)} entries; num_hidden_layers is {layers}"
    )
  return {"sliding_window": window, "sliding_layers": () if all(sliding) else sliding}


def _sliding_layers(
  raw: Mapping[str, Any], family: Family, layers: int
) -> tuple[bool, ...]:
  """Returns which layers are sliding ones, given a window."""
  kinds = raw.get("layer_types") if family.layer_types else None
  if kinds is not None:
    unknown = sorted(set(kinds) - {SLIDING, FULL})
    if unknown:
      raise ValueError(f"layer_types has {unknown[0]}; it may have {SLIDING} and {FULL}")
    return tuple(kind == SLIDING for kind in kinds)
  if family.unrotated:  # layers without RoPE are those with a window
    rotated = _rope_layers(raw, family, layers) or (True,) * layers
    return tuple(not rope for rope in rotated)
  if family.switched and family.layer_types:
    first = raw.get("max_window_layers", 28)
    return tuple(layer >= first for layer in range(layers))
  period = raw.get("sliding_window_pattern", family.period)
  return tuple(not period or (i + 1) % period > 0 for i in range(layers))


def _rope_layers(raw: Mapping[str, Any], family: Family, layers: int) -> tuple[bool, ...]:
  """Returns which layers have RoPE; empty for all of them."""
  if not family.unrotated:
    return ()
  listed = raw.get("no_rope_layers")  # despite its name, 1 is for a layer with RoPE
  if listed is None:
    interval = raw.get("no_rope_layer_interval", family.unrotated)
    listed = [(i + 1) % interval > 0 for i in range(layers)]
  if len(listed) < layers:
    raise ValueError(
      f"no_rope_layers has {len(listed)} entries; num_hidden_layers is {layers}"
    )
  rotated = tuple(bool(x) for x in listed[:layers])
  return () if all(rotated) else rotated


def _check_fixed(raw: Mapping[str, Any], family: Family) -> None:
  """Rejects settings that the decoder has no equivalent of."""
  if raw.get("use_bidirectional_attention"):
    raise ValueError("use_bidirectional_attention is true; the decoder is causal")
  for name, only in family.only.items():
    value = raw.get(name)
    if value is not None and value != only:
      raise ValueError(
        f"{name} is {value!r}; the only supported value for {family.architecture} is "
        f"{only!r}"
      )


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
  check_settings(raw)
  family = find_family(raw)
  if family.model_type == "mistral" and raw.get("layer_types") is not None:
    return from_hf(dict(raw) | {"architectures": None, "model_type": "ministral"})
  _check_fixed(raw, family)
  heads, width = (_required(raw, name) for name in ("num_attention_heads", "hidden_size"))
  layers = _required(raw, "num_hidden_layers")
  sliding = _sliding(raw, family, layers)
  fields = {
    "vocab_size": _required(raw, "vocab_size"),
    "num_layers": layers,
    "embed_dim": width,
    "num_heads": heads,
    "num_kv_heads": raw.get("num_key_value_heads") or heads,
    "head_dim": raw.get("head_dim") or family.head_dim or width // heads,
    "mlp_dim": _required(raw, "intermediate_size"),
    "norm_eps": raw.get("rms_norm_eps", family.norm_eps),
    "tie_embeddings": raw.get("tie_word_embeddings", family.tied),
    "scale_embeddings": False,
    "activation": read_activation(raw, family),
    "rope_layers": _rope_layers(raw, family, layers),
  }
  fields |= sliding | read_rope(raw, family, bool(sliding["sliding_window"]))
  fields |= family.fixed
  for setting in family.settings:
    fields[setting.field] = setting.value(raw)
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
  if family.window != 0:
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
  return [name for name in fields if vars(config)[name] != vars(other)[name]]


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
    f"{name} is {vars(config)[name]}, not {vars(expressed)[name]}" for name in differing
  )
  raise ValueError(
    "no supported architecture of transformers can express this decoder; the closest is "
    f"{architecture}, but {differences}"
  )
