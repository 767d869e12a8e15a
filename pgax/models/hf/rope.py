"""RoPE settings of `config.json`, with the names of transformers 5 or the older ones."""

import math
from collections.abc import Mapping
from typing import Any

from pgax.models.config import DecoderConfig
from pgax.models.hf.families import Family
from pgax.models.hf.settings import rope_type
from pgax.models.rope import KINDS, RopeScaling

# Kinds of layers, by the names of transformers.
SLIDING, FULL = "sliding_attention", "full_attention"


def _mscale(factor: float, weight: float) -> float:
  return 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0


def _fraction(raw: Mapping[str, Any], family: Family) -> float:
  """Reads the fraction of rotated features from one mapping of RoPE parameters."""
  fraction = raw.get("partial_rotary_factor")
  fraction = 1.0 if fraction is None else fraction
  if fraction != 1.0 and not family.rope_fraction:
    raise ValueError(
      f"partial_rotary_factor is {fraction}; {family.architecture} rotates all features"
    )
  return float(fraction)


def _longrope(raw: Mapping[str, Any], length: int, max_positions: int) -> RopeScaling:
  """Reads the scaling of texts that are not longer than in training."""
  for name in ("short_factor", "long_factor"):
    if raw.get(name) is None:
      raise ValueError(f"the RoPE parameters of type longrope have no {name}")
  return RopeScaling(
    "longrope",
    float(raw.get("factor") or max_positions / length),
    length,
    attention_factor=float(raw.get("attention_factor") or 0),
    factors=tuple(map(float, raw["short_factor"])),
  )


def _scaling(raw: Mapping[str, Any], max_positions: int, kind: str) -> RopeScaling:
  """Reads the scaling of wavelengths from one mapping of RoPE parameters."""
  if kind == "default":
    return RopeScaling()
  if kind not in KINDS:
    supported = ", ".join(("default", *KINDS[1:]))
    raise ValueError(f"rope_type {kind} is not supported; supported are {supported}")
  length = raw.get("original_max_position_embeddings") or max_positions
  if kind == "longrope":
    return _longrope(raw, length, max_positions)
  factor = raw.get("factor")
  if factor is None and kind == "yarn":
    factor = max_positions / length
  if factor is None:
    raise ValueError(f"the RoPE parameters of type {kind} have no factor")
  if kind == "linear":
    return RopeScaling(kind, float(factor))
  if kind == "llama3":
    low, high = raw.get("low_freq_factor"), raw.get("high_freq_factor")
    if low is None or high is None:
      raise ValueError("the RoPE parameters lack low_freq_factor or high_freq_factor")
    return RopeScaling(kind, float(factor), length, float(low), float(high))
  attention = raw.get("attention_factor")
  scales = raw.get("mscale"), raw.get("mscale_all_dim")
  if attention is None and all(scales):
    attention = _mscale(factor, scales[0]) / _mscale(factor, scales[1])
  return RopeScaling(
    kind,
    float(factor),
    length,
    beta_fast=float(raw.get("beta_fast") or 32),
    beta_slow=float(raw.get("beta_slow") or 1),
    attention_factor=float(attention or 0),
    truncate=raw.get("truncate", True),
  )


def read_rope(raw: Mapping[str, Any], family: Family, sliding: bool) -> dict[str, Any]:
  """Reads the RoPE fields of a `DecoderConfig`.

  Args:
    raw: contents of `config.json`.
    family: architecture, with the default bases.
    sliding: whether the model has sliding layers.

  Returns:
    `rope_theta`, `local_rope_theta`, `rope_scaling` and `rope_fraction`.

  Raises:
    ValueError: for parameters that the decoder has no equivalent of.
  """
  new = raw.get("rope_parameters") or {}
  nested = FULL in new or SLIDING in new
  params = {"rope_theta": raw.get("rope_theta") or family.theta}
  params |= (new.get(FULL) if nested else new) or {}
  params |= raw.get("rope_scaling") or {}  # the older name has precedence
  partial, length = "partial_rotary_factor", "original_max_position_embeddings"
  if raw.get(partial) is not None:
    params = {partial: raw[partial]} | params
  if raw.get(length) is not None:  # unlike the other one, it has precedence
    params |= {length: raw[length]}
  local_base = 0.0
  if family.local_theta and sliding:
    local = (new.get(SLIDING) if nested else None) or {}
    kind = local.get("rope_type", "default")
    if kind != "default":
      raise ValueError(
        f"rope_type {kind} is not supported in sliding layers; supported is default"
      )
    local_base = local.get("rope_theta") or raw.get("rope_local_base_freq")
    local_base = local_base or family.local_theta
  max_positions = raw.get("max_position_embeddings") or 0
  return {
    "rope_theta": float(params["rope_theta"]),
    "local_rope_theta": float(local_base),
    "rope_scaling": _scaling(params, max_positions, rope_type(params, family.model_type)),
    "rope_fraction": _fraction(params, family),
  }


def write_rope(config: DecoderConfig, family: Family) -> dict[str, Any]:
  """Writes the RoPE parameters of `config.json`.

  Args:
    config: configuration of the decoder.
    family: architecture; one with a local base has parameters for each kind of layer.

  Returns:
    A mapping with `rope_parameters`.
  """
  s = config.rope_scaling
  params = {"rope_type": "default" if s.kind == "none" else s.kind}
  params["rope_theta"] = config.rope_theta
  if family.rope_fraction:
    params["partial_rotary_factor"] = config.rope_fraction
  if s.kind != "none":
    params["factor"] = s.factor
  if s.kind in ("llama3", "yarn", "longrope"):
    params["original_max_position_embeddings"] = s.trained_length
  if s.kind == "llama3":
    params |= {"low_freq_factor": s.low_freq_factor, "high_freq_factor": s.high_freq_factor}
  if s.kind == "yarn":
    params |= {"beta_fast": s.beta_fast, "beta_slow": s.beta_slow, "truncate": s.truncate}
  if s.kind == "longrope":  # the factors of longer texts are unknown
    params |= {"short_factor": list(s.factors), "long_factor": list(s.factors)}
  if s.attention_factor:
    params["attention_factor"] = s.attention_factor
  if s.kind == "longrope":  # transformers prefers it there, and has a default
    length = {"original_max_position_embeddings": s.trained_length}
    return length | {"rope_parameters": params}
  if not family.local_theta:
    return {"rope_parameters": params}
  local = {"rope_type": "default", "rope_theta": config.local_rope_theta or 10_000.0}
  return {"rope_parameters": {FULL: params, SLIDING: local}}
