"""RoPE settings of `config.json`, with the names of transformers 5 or the older ones."""

import math
from collections.abc import Mapping
from typing import Any

from pgax.models.config import DecoderConfig
from pgax.models.rope import KINDS, RopeScaling

# Kinds of layers, by the names of transformers.
SLIDING, FULL = "sliding_attention", "full_attention"


def _mscale(factor: float, weight: float) -> float:
  return 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0


def _scaling(raw: Mapping[str, Any], max_positions: int) -> RopeScaling:
  """Reads the scaling of wavelengths from one mapping of RoPE parameters."""
  kind = raw.get("rope_type", raw.get("type", "default"))
  partial = raw.get("partial_rotary_factor", 1.0)
  if partial != 1.0:
    raise ValueError(
      f"partial_rotary_factor is {partial}; the decoder rotates all features"
    )
  if kind == "default":
    return RopeScaling()
  if kind not in KINDS:
    supported = ", ".join(("default", *KINDS[1:]))
    raise ValueError(f"rope_type {kind} is not supported; supported are {supported}")
  length = raw.get("original_max_position_embeddings") or max_positions
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


def read_rope(
  raw: Mapping[str, Any], theta: float, local_theta: float, sliding: bool
) -> dict[str, Any]:
  """Reads the RoPE fields of a `DecoderConfig`.

  Args:
    raw: contents of `config.json`.
    theta: default base of the architecture.
    local_theta: default base in sliding layers; 0 for an architecture with one base for all
      layers.
    sliding: whether the model has sliding layers.

  Returns:
    `rope_theta`, `local_rope_theta` and `rope_scaling`.

  Raises:
    ValueError: for parameters that the decoder has no equivalent of.
  """
  new = raw.get("rope_parameters") or {}
  nested = FULL in new or SLIDING in new
  params = {"rope_theta": raw.get("rope_theta") or theta}
  params |= (new.get(FULL) if nested else new) or {}
  params |= raw.get("rope_scaling") or {}  # the older name has precedence
  if "partial_rotary_factor" in raw:
    params = {"partial_rotary_factor": raw["partial_rotary_factor"]} | params
  local_base = 0.0
  if local_theta and sliding:
    local = (new.get(SLIDING) if nested else None) or {}
    kind = local.get("rope_type", "default")
    if kind != "default":
      raise ValueError(
        f"rope_type {kind} is not supported in sliding layers; supported is default"
      )
    local_base = local.get("rope_theta") or raw.get("rope_local_base_freq") or local_theta
  return {
    "rope_theta": float(params["rope_theta"]),
    "local_rope_theta": float(local_base),
    "rope_scaling": _scaling(params, raw.get("max_position_embeddings") or 0),
  }


def write_rope(config: DecoderConfig, nested: bool) -> dict[str, Any]:
  """Writes the RoPE parameters of `config.json`.

  Args:
    config: configuration of the decoder.
    nested: whether the architecture has parameters for each kind of layer.

  Returns:
    A mapping with `rope_parameters`.
  """
  s = config.rope_scaling
  params = {"rope_type": "default" if s.kind == "none" else s.kind}
  params["rope_theta"] = config.rope_theta
  if s.kind != "none":
    params["factor"] = s.factor
  if s.kind in ("llama3", "yarn"):
    params["original_max_position_embeddings"] = s.trained_length
  if s.kind == "llama3":
    params |= {"low_freq_factor": s.low_freq_factor, "high_freq_factor": s.high_freq_factor}
  if s.kind == "yarn":
    params |= {"beta_fast": s.beta_fast, "beta_slow": s.beta_slow, "truncate": s.truncate}
    params |= {"attention_factor": s.attention_factor} if s.attention_factor else {}
  if not nested:
    return {"rope_parameters": params}
  local = {"rope_type": "default", "rope_theta": config.local_rope_theta or 10_000.0}
  return {"rope_parameters": {FULL: params, SLIDING: local}}
