"""Converts `config.json` of transformers to a `DecoderConfig` and back."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from pgax.models.config import DecoderConfig
from pgax.models.hf.rope import FULL, SLIDING, read_rope, write_rope
from pgax.models.hf.settings import check_settings

_ACTIVATIONS = {"silu": "silu", "gelu_pytorch_tanh": "gelu_tanh"}
_NOT_SAVED = ("dtype", "attention", "remat")  # fields that a checkpoint does not have


@dataclasses.dataclass(frozen=True)
class Family:
  """An architecture of transformers: what it fixes, and the defaults of its settings.

  Attributes:
    architecture: name of the class in transformers.
    model_type: short name of the architecture.
    tied: whether embeddings are tied by default.
    head_dim: default head width; 0 for `hidden_size / num_attention_heads`.
    qkv_bias: whether the projections to queries, keys and values always have biases.
    biases: names of the settings that switch biases on.
    qk_norm: whether queries and keys are normalized.
    gemma: whether it has Gemma's unit-offset norms, post norms, GeGLU, scaled embeddings
      and query scalar.
    window: default of `sliding_window`; 0 for an architecture without sliding layers.
    period: by default all layers but each `period`-th are sliding; 0 for all layers.
    switched: whether the window requires `use_sliding_window`.
    theta: default base of the RoPE wavelengths.
    local_theta: default base of the RoPE wavelengths in sliding layers; 0 if all layers
      have the same base.
    softcaps: default caps of attention scores and logits.
  """

  architecture: str
  model_type: str
  tied: bool = False
  head_dim: int = 0
  qkv_bias: bool = False
  biases: tuple[str, ...] = ()
  qk_norm: bool = False
  gemma: bool = False
  window: int = 0
  period: int = 0
  switched: bool = False
  theta: float = 10_000.0
  local_theta: float = 0.0
  softcaps: tuple[float, float] = (0.0, 0.0)

  @property
  def reward_model(self) -> str:
    """Name of the class that puts a classification head on the same decoder."""
    stem = self.architecture.removesuffix("ForCausalLM")
    text = "Text" if stem == "Gemma3" else ""  # the plain name is the multimodal model's
    return f"{stem}{text}ForSequenceClassification"


FAMILIES = (
  Family("LlamaForCausalLM", "llama", biases=("attention_bias", "mlp_bias")),
  Family("MistralForCausalLM", "mistral", window=4096),
  Family("Qwen2ForCausalLM", "qwen2", qkv_bias=True, window=4096, switched=True),
  Family(
    "Qwen3ForCausalLM",
    "qwen3",
    head_dim=128,
    biases=("attention_bias",),
    qk_norm=True,
    window=4096,
    switched=True,
  ),
  Family(
    "Gemma2ForCausalLM",
    "gemma2",
    tied=True,
    head_dim=256,
    biases=("attention_bias",),
    gemma=True,
    window=4096,
    period=2,
    softcaps=(50.0, 30.0),
  ),
  Family(
    "Gemma3ForCausalLM",
    "gemma3_text",
    tied=True,
    head_dim=256,
    biases=("attention_bias",),
    qk_norm=True,
    gemma=True,
    window=4096,
    period=6,
    theta=1_000_000.0,
    local_theta=10_000.0,
  ),
)


def _family(raw: Mapping[str, Any]) -> Family:
  name = (raw.get("architectures") or [raw.get("model_type")])[0]
  for family in FAMILIES:
    if name in (family.architecture, family.model_type):
      if raw.get("model_type", family.model_type) != family.model_type:
        raise ValueError(
          f"model_type is {raw['model_type']}; that of {family.architecture} is "
          f"{family.model_type}"
        )
      return family
  supported = ", ".join(family.architecture for family in FAMILIES)
  raise ValueError(f"architecture {name} is not supported; supported are {supported}")


def _required(raw: Mapping[str, Any], name: str) -> Any:
  if raw.get(name) is None:
    raise ValueError(f"config.json has no {name}")
  return raw[name]


def _sliding(raw: Mapping[str, Any], family: Family, layers: int) -> dict[str, Any]:
  """Returns the window and the sliding layers; no window if no layer is sliding."""
  window = raw.get("sliding_window", family.window) if family.window else 0
  if family.switched and not raw.get("use_sliding_window", False):
    window = 0
  kinds = None if family.model_type == "mistral" else raw.get("layer_types")
  if kinds is not None:
    unknown = sorted(set(kinds) - {SLIDING, FULL})
    if unknown:
      raise ValueError(f"layer_types has {unknown[0]}; it may have {SLIDING} and {FULL}")
    sliding = tuple(kind == SLIDING for kind in kinds)
  elif family.switched:
    first = raw.get("max_window_layers", 28)
    sliding = tuple(layer >= first for layer in range(layers))
  else:
    period = raw.get("sliding_window_pattern", family.period)
    sliding = tuple(not period or (i + 1) % period > 0 for i in range(layers))
  if not window or not any(sliding):
    return {"sliding_window": 0, "sliding_layers": ()}
  if len(sliding) != layers:
    raise ValueError(
      f"layer_types has {len(sliding)} entries; num_hidden_layers is {layers}"
    )
  return {"sliding_window": window, "sliding_layers": () if all(sliding) else sliding}


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
  family = _family(raw)
  activation = raw.get("hidden_activation" if family.gemma else "hidden_act")
  activation = activation or ("gelu_pytorch_tanh" if family.gemma else "silu")
  if activation not in _ACTIVATIONS:
    supported = ", ".join(_ACTIVATIONS)
    raise ValueError(f"activation {activation} is not supported; supported are {supported}")
  if raw.get("use_bidirectional_attention"):
    raise ValueError("use_bidirectional_attention is true; the decoder is causal")
  heads, width = (_required(raw, name) for name in ("num_attention_heads", "hidden_size"))
  layers = _required(raw, "num_hidden_layers")
  sliding = _sliding(raw, family, layers)
  bias, mlp_bias = (
    name in family.biases and raw.get(name, False)
    for name in ("attention_bias", "mlp_bias")
  )
  caps = ("attn_logit_softcapping", "final_logit_softcapping")
  if family.model_type == "gemma3_text" and raw.get(caps[0]):
    raise ValueError(f"{caps[0]} is {raw[caps[0]]}; transformers ignores it for Gemma 3")
  defaults = zip(caps, family.softcaps, strict=True)
  softcaps = [(raw.get(name, cap) or 0.0) * family.gemma for name, cap in defaults]
  return DecoderConfig(
    vocab_size=_required(raw, "vocab_size"),
    num_layers=layers,
    embed_dim=width,
    num_heads=heads,
    num_kv_heads=raw.get("num_key_value_heads") or heads,
    head_dim=raw.get("head_dim") or family.head_dim or width // heads,
    mlp_dim=_required(raw, "intermediate_size"),
    norm_eps=raw.get("rms_norm_eps", 1e-6),
    tie_embeddings=raw.get("tie_word_embeddings", family.tied),
    scale_embeddings=family.gemma,
    activation=_ACTIVATIONS[activation],
    qkv_bias=family.qkv_bias or bias,
    out_bias=bias,
    mlp_bias=mlp_bias,
    qk_norm=family.qk_norm,
    unit_offset_norm=family.gemma,
    post_norms=family.gemma,
    query_scalar=float(raw.get("query_pre_attn_scalar", 256)) if family.gemma else 0.0,
    attention_softcap=softcaps[0],
    logit_softcap=softcaps[1],
    **sliding,
    **read_rope(raw, family.theta, family.local_theta, bool(sliding["sliding_window"])),
  )


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
  names = {ours: hf_name for hf_name, ours in _ACTIVATIONS.items()}
  raw["hidden_activation" if family.gemma else "hidden_act"] = names[c.activation]
  biases = {"attention_bias": c.out_bias, "mlp_bias": c.mlp_bias}
  raw |= {name: biases[name] for name in family.biases}
  if family.gemma:
    scalar = c.query_scalar or float(c.head_dim)
    raw["query_pre_attn_scalar"] = int(scalar) if scalar.is_integer() else scalar
    raw["attn_logit_softcapping"] = c.attention_softcap or None
    raw["final_logit_softcapping"] = c.logit_softcap or None
  if family.window:
    raw["sliding_window"] = c.sliding_window or None
  if family.switched:
    raw["use_sliding_window"] = c.sliding_window > 0
  if family.switched or family.period:
    raw["layer_types"] = [SLIDING if sliding else FULL for sliding in c.is_sliding]
  return raw | write_rope(config, nested=family.local_theta > 0)


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
