"""RoPE settings of transformers."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pgax.models.config import DecoderConfig
from pgax.models.hf.families import Family
from pgax.models.rope import KINDS, RopeScaling

if TYPE_CHECKING:
  from transformers import PreTrainedConfig

# Kinds of layers, by the names of transformers.
SLIDING, FULL = "sliding_attention", "full_attention"


def rope_type(params: Mapping[str, Any], model_type: str | None) -> str:
  """Reads the kind of scaling from RoPE parameters of any age."""
  kind = params.get("rope_type") or params.get("type") or "default"
  older = kind == "su" or (kind == "yarn" and model_type == "phi3")
  return "longrope" if older else kind


def _number(name: str, value: Any) -> float:
  """Checks a number, of which transformers checks neither the type nor the range."""
  number = isinstance(value, int | float) and not isinstance(value, bool)
  if not number or not 0 < value < math.inf:
    raise ValueError(f"RoPE parameter {name} is {value!r}; it must be a positive number")
  return float(value)


def _mscale(factor: float, weight: float) -> float:
  return 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0


def _scaling(params: Mapping[str, Any], max_positions: int, kind: str) -> RopeScaling:
  """Reads the scaling of wavelengths."""
  if kind == "default":
    return RopeScaling()
  if kind not in KINDS:
    supported = ", ".join(("default", *KINDS[1:]))
    raise ValueError(f"rope_type {kind} is not supported; supported are {supported}")

  def number(name: str, default: float | None = None) -> float:
    value = params.get(name)
    return default if value is None and default is not None else _number(name, value)

  length = int(number("original_max_position_embeddings", max_positions))
  if kind == "longrope":  # for texts that are not longer than in training
    factors = params.get("short_factor")
    if not isinstance(factors, list):
      raise ValueError(f"RoPE parameter short_factor is {factors!r}; it must be a list")
    return RopeScaling(
      kind,
      number("factor", max_positions / length),
      length,
      attention_factor=float(params.get("attention_factor") or 0),
      factors=tuple(_number("short_factor", x) for x in factors),
    )
  if kind == "linear":
    return RopeScaling(kind, number("factor"))
  if kind == "llama3":
    low, high = number("low_freq_factor"), number("high_freq_factor")
    return RopeScaling(kind, number("factor"), length, low, high)
  factor = number("factor", max_positions / length)
  attention = params.get("attention_factor")
  scales = params.get("mscale"), params.get("mscale_all_dim")
  if attention is None and all(scales):
    attention = _mscale(factor, scales[0]) / _mscale(factor, scales[1])
  return RopeScaling(
    kind,
    factor,
    length,
    beta_fast=number("beta_fast", 32.0),
    beta_slow=number("beta_slow", 1.0),
    attention_factor=float(attention or 0),
    truncate=params.get("truncate", True),
  )


def read_rope(config: "PreTrainedConfig", family: Family, sliding: bool) -> dict[str, Any]:
  """Reads the RoPE fields of a `DecoderConfig`.

  Args:
    config: settings that transformers read.
    family: the architecture.
    sliding: whether the model has sliding layers.

  Returns:
    `rope_theta`, `local_rope_theta`, `rope_scaling` and `rope_fraction`.

  Raises:
    ValueError: for parameters that the decoder has no equivalent of.
  """
  params, local_base = config.rope_parameters, 0.0
  if family.local_theta:
    params, local = params[FULL], params[SLIDING]
    kind = rope_type(local, family.model_type)
    if sliding and kind != "default":
      raise ValueError(
        f"rope_type {kind} is not supported in sliding layers; supported is default"
      )
    local_base = _number("rope_theta", local["rope_theta"]) if sliding else 0.0
  length = "original_max_position_embeddings"
  if getattr(config, length, None) is not None:
    params = dict(params) | {length: getattr(config, length)}
  fraction = params.get("partial_rotary_factor")
  fraction = 1.0 if fraction is None else float(fraction)
  if fraction != 1.0 and not family.rope_fraction:
    raise ValueError(
      f"partial_rotary_factor is {fraction}; {family.architecture} rotates all features"
    )
  kind = rope_type(params, family.model_type)
  return {
    "rope_theta": _number("rope_theta", params["rope_theta"]),
    "local_rope_theta": local_base,
    "rope_scaling": _scaling(params, config.max_position_embeddings, kind),
    "rope_fraction": fraction,
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
