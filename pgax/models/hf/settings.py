"""Checks the types and ranges of the settings in `config.json` of transformers."""

import math
from collections.abc import Mapping
from typing import Any

_SIZES = (
  "vocab_size",
  "hidden_size",
  "intermediate_size",
  "num_hidden_layers",
  "num_attention_heads",
  "num_key_value_heads",
  "head_dim",
  "max_position_embeddings",
  "sliding_window_pattern",
  "no_rope_layer_interval",
  "moe_intermediate_size",
  "num_experts",
  "num_local_experts",
  "num_experts_per_tok",
  "decoder_sparse_step",
  "original_max_position_embeddings",
)
_OR_ZERO = ("sliding_window", "max_window_layers")
_POSITIVE = (
  "rms_norm_eps",
  "rope_theta",
  "rope_local_base_freq",
  "query_pre_attn_scalar",
  "embedding_multiplier",
  "residual_multiplier",
  "attention_multiplier",
  "logits_scaling",
)
_NUMBERS = (
  "attn_logit_softcapping",
  "final_logit_softcapping",
  "partial_rotary_factor",
  "router_jitter_noise",
)
_SWITCHES = (
  "tie_word_embeddings",
  "attention_bias",
  "mlp_bias",
  "use_sliding_window",
  "use_bidirectional_attention",
  "norm_topk_prob",
)
_TEXTS = ("model_type", "hidden_act", "hidden_activation")
_LISTS = ("architectures", "layer_types")
_INDICES = ("no_rope_layers", "mlp_only_layers")
_MAPPINGS = ("rope_scaling", "rope_parameters")
_SCALING = ("factor", "low_freq_factor", "high_freq_factor", "attention_factor")
_FACTORS = ("short_factor", "long_factor")


def check_settings(raw: Mapping[str, Any]) -> None:
  """Checks those settings that a decoder reads; ones that are null or absent are ignored.

  Args:
    raw: contents of `config.json`.

  Raises:
    ValueError: for the first setting of a wrong type or out of range; the message names it.
  """
  for names, expected in (
    (_SIZES, "a positive whole number"),
    (_OR_ZERO, "a whole number, not negative"),
    (_POSITIVE, "a positive number"),
    (_NUMBERS, "a number, not negative"),
    (_SWITCHES, "true or false"),
    (_TEXTS, "a string"),
    (_LISTS, "a list of strings"),
    (_INDICES, "a list of whole numbers, not negative"),
    (_MAPPINGS, "an object"),
  ):
    for name in names:
      value = raw.get(name)
      if value is not None and not _fits(value, expected):
        raise ValueError(f"{name} is {value!r}; it must be {expected}")
  for section in _MAPPINGS:
    for name, value in _scaling_settings(raw.get(section) or {}):
      expected = "a positive number"
      expected = "a list of positive numbers" if name in _FACTORS else expected
      if value is not None and not _fits(value, expected):
        raise ValueError(f"{section}.{name} is {value!r}; it must be {expected}")
  if raw.get("quantization_config") is not None:
    raise ValueError(
      "quantization_config is set; quantized weights are not supported. Give a directory "
      "of the model in float32, bfloat16 or float16"
    )


def _scaling_settings(section: Mapping[str, Any]) -> list[tuple[str, Any]]:
  """Returns the numbers among RoPE parameters, those of each kind of layer included."""
  inner = [x for x in section.values() if isinstance(x, Mapping)]
  names = (*_SCALING, *_FACTORS, "rope_theta", "original_max_position_embeddings")
  return [(name, part.get(name)) for part in (section, *inner) for name in names]


def _fits(value: Any, expected: str) -> bool:
  number = isinstance(value, int | float) and not isinstance(value, bool)
  match expected:
    case "a positive whole number":
      return number and isinstance(value, int) and value >= 1
    case "a whole number, not negative":
      return number and isinstance(value, int) and value >= 0
    case "a positive number":
      return number and 0 < value < math.inf
    case "a number, not negative":
      return number and 0 <= value < math.inf
    case "true or false":
      return isinstance(value, bool)
    case "a string":
      return isinstance(value, str)
    case "a list of positive numbers":
      return isinstance(value, list) and all(_fits(x, "a positive number") for x in value)
    case "a list of whole numbers, not negative":
      expected = "a whole number, not negative"
      return isinstance(value, list) and all(_fits(x, expected) for x in value)
    case "a list of strings":
      return isinstance(value, list) and all(isinstance(x, str) for x in value)
  return isinstance(value, Mapping)


def rope_type(raw: Mapping[str, Any], model_type: str | None) -> str:
  """Reads the kind of scaling from one mapping of RoPE parameters."""
  kind = raw.get("rope_type") or raw.get("type") or "default"
  older = kind == "su" or (kind == "yarn" and model_type == "phi3")
  return "longrope" if older else kind


def check_length(raw: Mapping[str, Any], tokens: int) -> None:
  """Checks that a text is not longer than those that a model was made for.

  Args:
    raw: contents of `config.json`.
    tokens: number of tokens of the longest text.

  Raises:
    ValueError: if `max_position_embeddings` is smaller, or the length of training of a
      model with LongRoPE.
  """
  key, allowed = "max_position_embeddings", raw.get("max_position_embeddings")
  for section in _MAPPINGS:
    params = raw.get(section) or {}
    if rope_type(params, raw.get("model_type")) == "longrope":
      # Longer texts have other wavelengths, from their first token on.
      key = "original_max_position_embeddings"
      allowed = raw.get(key) or params.get(key) or allowed
    elif allowed and (factor := params.get("factor")):
      # Some files give the length before it is scaled.
      allowed = int(allowed * max(factor, 1))
  if allowed and tokens > allowed:
    raise ValueError(
      f"sampling.max_prompt_tokens + sampling.max_completion_tokens is {tokens}; the "
      f"model's {key} allows {allowed}"
    )
