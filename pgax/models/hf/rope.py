"""Rotary settings of `config.json`, by the names of transformers 5 and the older ones."""

import math
from collections.abc import Mapping
from typing import Any

from pgax.models.config import DecoderConfig
from pgax.models.rope import KINDS, RopeScaling

_LOCAL, _GLOBAL = "sliding_attention", "full_attention"


def _mscale(factor: float, weight: float) -> float:
  return 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0


def _scaling(raw: Mapping[str, Any], max_positions: int) -> RopeScaling:
  """How wavelengths are stretched, from one mapping of rotary parameters."""
  kind = raw.get("rope_type", raw.get("type", "default"))
  if raw.get("partial_rotary_factor", 1.0) != 1.0:
    told = raw["partial_rotary_factor"]
    raise ValueError(f"partial_rotary_factor is {told}; the decoder turns all features")
  if kind == "default":
    return RopeScaling()
  if kind not in KINDS:
    known = ", ".join(("default", *KINDS[1:]))
    raise ValueError(f"rope_type {kind} is not known; known are {known}")
  length = raw.get("original_max_position_embeddings") or max_positions
  factor = raw.get("factor")
  if factor is None and kind == "yarn":
    factor = max_positions / length
  if factor is None:
    raise ValueError(f"the rotary parameters of type {kind} lack factor")
  if kind == "linear":
    return RopeScaling(kind, float(factor))
  if kind == "llama3":
    low, high = raw.get("low_freq_factor"), raw.get("high_freq_factor")
    if low is None or high is None:
      raise ValueError("the rotary parameters lack low_freq_factor or high_freq_factor")
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


def read_rope(
  raw: Mapping[str, Any], theta: float, local_theta: float, slides: bool
) -> dict[str, Any]:
  """The rotary fields of a `DecoderConfig`.

  Args:
    raw: `config.json`.
    theta: the architecture's default base.
    local_theta: likewise in sliding layers; 0 for an architecture with one base for all.
    slides: whether there are sliding layers.

  Returns:
    `rope_theta`, `local_rope_theta` and `rope_scaling`.

  Raises:
    ValueError: for parameters that the decoder has no match for.
  """
  new = raw.get("rope_parameters") or {}
  nested = _GLOBAL in new or _LOCAL in new
  own = {"rope_theta": raw.get("rope_theta") or theta}
  own |= (new.get(_GLOBAL) if nested else new) or {}
  own |= raw.get("rope_scaling") or {}  # where both are, the older name counts
  if "partial_rotary_factor" in raw:
    own = {"partial_rotary_factor": raw["partial_rotary_factor"]} | own
  local = 0.0
  if local_theta and slides:
    sliding = (new.get(_LOCAL) if nested else None) or {}
    if sliding.get("rope_type", "default") != "default":
      raise ValueError(f"rope_type {sliding['rope_type']} of sliding layers is not known")
    local = sliding.get("rope_theta") or raw.get("rope_local_base_freq") or local_theta
  return {
    "rope_theta": float(own["rope_theta"]),
    "local_rope_theta": float(local),
    "rope_scaling": _scaling(own, raw.get("max_position_embeddings") or 0),
  }


def write_rope(config: DecoderConfig, nested: bool) -> dict[str, Any]:
  """The rotary parameters of `config.json`.

  Args:
    config: of the decoder.
    nested: whether the architecture has some for each kind of layer.

  Returns:
    `rope_parameters`.
  """
  s = config.rope_scaling
  own = {"rope_type": "default" if s.kind == "none" else s.kind}
  own["rope_theta"] = config.rope_theta
  if s.kind != "none":
    own["factor"] = s.factor
  if s.kind in ("llama3", "yarn"):
    own["original_max_position_embeddings"] = s.trained_length
  if s.kind == "llama3":
    own |= {"low_freq_factor": s.low_freq_factor, "high_freq_factor": s.high_freq_factor}
  if s.kind == "yarn":
    own |= {"beta_fast": s.beta_fast, "beta_slow": s.beta_slow, "truncate": s.truncate}
    own |= {"attention_factor": s.attention_factor} if s.attention_factor else {}
  if not nested:
    return {"rope_parameters": own}
  local = {"rope_type": "default", "rope_theta": config.local_rope_theta or 10_000.0}
  return {"rope_parameters": {_GLOBAL: own, _LOCAL: local}}
