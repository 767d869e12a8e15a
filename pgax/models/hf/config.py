"""`config.json` of transformers to a `DecoderConfig` and back, for every architecture."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from pgax.models.config import DecoderConfig
from pgax.models.hf.rope import read_rope, write_rope

_ACTIVATIONS = {"silu": "silu", "gelu_pytorch_tanh": "gelu_tanh"}
_OURS = ("dtype", "remat")  # fields that are no part of a checkpoint
_SLIDING, _FULL = "sliding_attention", "full_attention"


@dataclasses.dataclass(frozen=True)
class Family:
  """What an architecture fixes, and what transformers assumes where a file is silent.

  Attributes:
    architecture: class in transformers.
    model_type: its short name.
    tied: whether embeddings are tied by default.
    head_dim: default; 0 for `hidden_size / num_attention_heads`.
    qkv_bias: whether queries, keys and values always have a bias.
    biases: names of the settings for biases.
    qk_norm: whether queries and keys are normalised.
    gemma: unit-offset and post norms, GeGLU, scaled embeddings, a scalar for queries.
    window: default of `sliding_window`; 0 for an architecture without.
    period: every layer slides but each `period`-th, where no layer is named; 0 for all.
    switched: whether the window needs `use_sliding_window`.
    theta: default base of the wavelengths.
    local_theta: likewise in sliding layers; 0 if they have none of their own.
    softcaps: default caps of scores and logits.
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
    """Class of the same decoder under a head for classes."""
    stem = self.architecture.removesuffix("ForCausalLM")
    text = "Text" if stem == "Gemma3" else ""  # the plain name is of the one that sees
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
  named = raw.get("architectures") or [raw.get("model_type")]
  for family in FAMILIES:
    if named[0] in (family.architecture, family.model_type):
      return family
  known = ", ".join(family.architecture for family in FAMILIES)
  raise ValueError(f"the architecture {named[0]} is not known; known are {known}")


def _required(raw: Mapping[str, Any], name: str) -> Any:
  if raw.get(name) is None:
    raise ValueError(f"config.json lacks {name}")
  return raw[name]


def _sliding(raw: Mapping[str, Any], family: Family, layers: int) -> dict[str, Any]:
  """Window, and the layers that slide; no window if none does."""
  window = raw.get("sliding_window", family.window) if family.window else 0
  if family.switched and not raw.get("use_sliding_window", False):
    window = 0
  kinds = None if family.model_type == "mistral" else raw.get("layer_types")
  if kinds is not None:
    unknown = sorted(set(kinds) - {_SLIDING, _FULL})
    if unknown:
      raise ValueError(f"layer_types has {unknown[0]}; known are {_SLIDING} and {_FULL}")
    slides = tuple(kind == _SLIDING for kind in kinds)
  elif family.switched:
    first = raw.get("max_window_layers", 28)
    slides = tuple(layer >= first for layer in range(layers))
  else:
    period = raw.get("sliding_window_pattern", family.period)
    slides = tuple(not period or (i + 1) % period > 0 for i in range(layers))
  if not window or not any(slides):
    return {"sliding_window": 0, "sliding_layers": ()}
  return {"sliding_window": window, "sliding_layers": () if all(slides) else slides}


def from_hf(raw: Mapping[str, Any]) -> DecoderConfig:
  """The decoder that a `config.json` of transformers describes.

  Args:
    raw: the file as a mapping; both the names of transformers 5 (`rope_parameters`) and
      the older ones (`rope_theta`, `rope_scaling`) are read.

  Returns:
    A `DecoderConfig`, computing in float32.

  Raises:
    ValueError: for an unknown architecture, a missing setting, or one that the decoder has
      no match for; it names it.
  """
  family = _family(raw)
  activation = raw.get("hidden_activation" if family.gemma else "hidden_act")
  activation = activation or ("gelu_pytorch_tanh" if family.gemma else "silu")
  if activation not in _ACTIVATIONS:
    known = ", ".join(_ACTIVATIONS)
    raise ValueError(f"the activation {activation} is not known; known are {known}")
  if raw.get("use_bidirectional_attention"):
    raise ValueError("use_bidirectional_attention is true; the decoder reads forwards only")
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
  """The settings as this architecture has them, whether or not it can say them all."""
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
  names = {ours: theirs for theirs, ours in _ACTIVATIONS.items()}
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
    raw["layer_types"] = [_SLIDING if slides else _FULL for slides in c.slides]
  return raw | write_rope(config, nested=family.local_theta > 0)


def same_checkpoint(config: DecoderConfig, other: DecoderConfig) -> list[str]:
  """Names of the fields in which two configurations of a checkpoint differ."""
  fields = [field.name for field in dataclasses.fields(config) if field.name not in _OURS]
  return [name for name in fields if vars(config)[name] != vars(other)[name]]


def to_hf(config: DecoderConfig) -> dict[str, Any]:
  """The `config.json` of an architecture in transformers that is this decoder.

  The first of `FAMILIES` that can say all of it: a Mistral without a window is a Llama.

  Args:
    config: of the decoder.

  Returns:
    The file as a mapping, without what is no part of the decoder, such as token ids.

  Raises:
    ValueError: if there is none; it names what the closest one has otherwise.
  """
  closest = None
  for family in FAMILIES:
    raw = _write(config, family)
    try:
      found = from_hf(raw)
    except ValueError:
      continue  # a setting that this architecture does not have
    differing = same_checkpoint(config, found)
    if not differing:
      return raw
    if closest is None or len(differing) < len(closest[1]):
      closest = family.architecture, differing, found
  architecture, differing, found = closest
  told = "; ".join(
    f"{name} is {vars(config)[name]}, there {vars(found)[name]}" for name in differing
  )
  raise ValueError(
    "no known architecture of transformers is this decoder; the closest is "
    f"{architecture}, but {told}"
  )
