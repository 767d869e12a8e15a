"""The supported architectures of transformers: what differs between them, as data."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

_ACTIVATIONS = {"silu": "silu", "gelu_pytorch_tanh": "gelu_tanh"}


def _same(value: Any) -> Any:
  return value


def _rounded(value: float) -> float:
  """Rounds away what is lost on the way to a power and back."""
  return float(f"{value:.12g}")


@dataclasses.dataclass(frozen=True)
class Setting:
  """A setting of `config.json`, and the field of a `DecoderConfig` that it decides.

  Attributes:
    name: name of the setting.
    field: name of the field.
    default: value of a setting that the file does not have.
    read: converts the setting to the field.
    write: converts the field to the setting.
    other_name: name of the setting in some files; empty if it has one name.
  """

  name: str
  field: str
  default: Any
  read: Callable[[Any], Any] = _same
  write: Callable[[Any], Any] = _same
  other_name: str = ""

  def value(self, raw: Mapping[str, Any]) -> Any:
    """Reads the field from the contents of `config.json`."""
    name = self.name if self.name in raw else self.other_name
    return self.read(raw.get(name, self.default))


@dataclasses.dataclass(frozen=True)
class Layout:
  """Names of tensors that differ between architectures; relative to a layer.

  Attributes:
    fused: linear layers that the checkpoint saves as one, by the name of that one.
    router: name of a router.
    experts: names of an expert's gate, up and down projections; `{}` is its number.
  """

  fused: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
  router: str = "mlp.gate"
  experts: tuple[str, str, str] = (
    "mlp.experts.{}.gate_proj",
    "mlp.experts.{}.up_proj",
    "mlp.experts.{}.down_proj",
  )


@dataclasses.dataclass(frozen=True)
class Family:
  """An architecture of transformers: what it fixes, and the defaults of its settings.

  Attributes:
    architecture: name of the class in transformers.
    model_type: short name of the architecture.
    tied: whether embeddings are tied by default.
    head_dim: default head width; 0 for `hidden_size / num_attention_heads`.
    fixed: fields of a `DecoderConfig` that all models of the architecture share.
    settings: settings that the architecture has besides those that all have.
    only: settings whose every other value the decoder has no equivalent of.
    activation: name of the setting of the activation, and its default.
    norm_eps: default of `rms_norm_eps`.
    window: default of `sliding_window`; 0 for an architecture without sliding layers. None
      for one that has them but no default.
    period: by default all layers but each `period`-th are sliding; 0 for all layers.
    switched: whether the window requires `use_sliding_window`.
    layer_types: whether sliding layers are listed by `layer_types`.
    unrotated: by default each `unrotated`-th layer has no RoPE; 0 if all layers have it.
    theta: default base of the RoPE wavelengths.
    local_theta: default base of the RoPE wavelengths in sliding layers; 0 if all layers
      have the same base.
    rope_fraction: whether `partial_rotary_factor` may be other than 1.
    layout: names of tensors.
    reward_model: name of the class that puts a classification head on the same decoder;
      empty if transformers has none.
  """

  architecture: str
  model_type: str
  tied: bool = False
  head_dim: int = 0
  fixed: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  settings: tuple[Setting, ...] = ()
  only: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  activation: tuple[str, str] = ("hidden_act", "silu")
  norm_eps: float = 1e-6
  window: int | None = 0
  period: int = 0
  switched: bool = False
  layer_types: bool = False
  unrotated: int = 0
  theta: float = 10_000.0
  local_theta: float = 0.0
  rope_fraction: bool = False
  layout: Layout = Layout()
  reward_model: str = ""


def _family(architecture: str, model_type: str, **differences: Any) -> Family:
  """Builds a `Family`; most have a reward model of the same name."""
  reward_model = architecture.replace("ForCausalLM", "ForSequenceClassification")
  return Family(architecture, model_type, **{"reward_model": reward_model} | differences)


_ATTENTION_BIAS = (
  Setting("attention_bias", "qkv_bias", False),
  Setting("attention_bias", "out_bias", False),
)
_BIASES = (*_ATTENTION_BIAS, Setting("mlp_bias", "mlp_bias", False))
_GEMMA = {"unit_offset_norm": True, "scale_embeddings": True}
_LATER_GEMMA = _GEMMA | {"norm_placement": "sandwich"}


def _whole(value: float) -> float | int:
  """A number without a fraction as a whole one, which transformers expects of some."""
  return int(value) if float(value).is_integer() else value


_QUERY_SCALAR = Setting("query_pre_attn_scalar", "query_scalar", 256.0, float, _whole)


def _cap(name: str, field: str, default: float) -> Setting:
  """A cap of scores or logits: null in the file is 0 here."""
  return Setting(name, field, default, lambda cap: cap or 0.0, lambda cap: cap or None)


_GRANITE = (
  Setting("embedding_multiplier", "embedding_scale", 1.0, float),
  Setting("residual_multiplier", "residual_scale", 1.0, float),
  Setting("logits_scaling", "logit_divisor", 1.0, float),
  # Scores are multiplied by `query_scalar**-0.5`.
  Setting(
    "attention_multiplier",
    "query_scalar",
    1.0,
    lambda factor: _rounded(factor**-2),
    lambda scalar: _rounded(scalar**-0.5),
  ),
)

FAMILIES = (
  _family("LlamaForCausalLM", "llama", settings=_BIASES),
  _family("MistralForCausalLM", "mistral", window=4096),
  # transformers' `AutoModel` takes a Mistral with `layer_types` for one of these.
  _family("MinistralForCausalLM", "ministral", window=4096, layer_types=True),
  _family(
    "Qwen2ForCausalLM",
    "qwen2",
    fixed={"qkv_bias": True},
    window=4096,
    switched=True,
    layer_types=True,
  ),
  _family(
    "Qwen3ForCausalLM",
    "qwen3",
    head_dim=128,
    fixed={"qk_norm": "head"},
    settings=_ATTENTION_BIAS,
    window=4096,
    switched=True,
    layer_types=True,
  ),
  _family(
    "Qwen3MoeForCausalLM",
    "qwen3_moe",
    fixed={"qk_norm": "head"},
    settings=(
      *_ATTENTION_BIAS,
      Setting("moe_intermediate_size", "mlp_dim", 768),
      Setting("num_experts", "num_experts", 128, other_name="num_local_experts"),
      Setting("num_experts_per_tok", "experts_per_token", 8),
      Setting("norm_topk_prob", "normalize_router", False),
    ),
    only={"decoder_sparse_step": 1, "mlp_only_layers": []},
    window=4096,
    switched=True,
  ),
  _family(
    "MixtralForCausalLM",
    "mixtral",
    settings=(
      Setting("num_local_experts", "num_experts", 8),
      Setting("num_experts_per_tok", "experts_per_token", 2),
    ),
    only={"router_jitter_noise": 0.0},
    norm_eps=1e-5,
    window=None,
    theta=1_000_000.0,
    layout=Layout(
      router="block_sparse_moe.gate",
      experts=(
        "block_sparse_moe.experts.{}.w1",
        "block_sparse_moe.experts.{}.w3",
        "block_sparse_moe.experts.{}.w2",
      ),
    ),
  ),
  _family(
    "Phi3ForCausalLM",
    "phi3",
    norm_eps=1e-5,
    window=None,
    rope_fraction=True,
    layout=Layout(
      fused={
        "self_attn.qkv_proj": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        "mlp.gate_up_proj": ("mlp.gate_proj", "mlp.up_proj"),
      }
    ),
  ),
  _family(
    "SmolLM3ForCausalLM",
    "smollm3",
    tied=True,
    settings=_BIASES,
    window=None,
    switched=True,
    layer_types=True,
    unrotated=4,
    theta=2_000_000.0,
  ),
  _family(
    "Olmo2ForCausalLM",
    "olmo2",
    fixed={"qk_norm": "projection", "norm_placement": "post"},
    settings=_ATTENTION_BIAS,
    norm_eps=1e-5,
  ),
  _family(
    "GraniteForCausalLM",
    "granite",
    settings=(*_BIASES, *_GRANITE),
    reward_model="",
  ),
  _family(
    "GemmaForCausalLM",
    "gemma",
    tied=True,
    head_dim=256,
    fixed=_GEMMA,
    settings=_ATTENTION_BIAS,
    activation=("hidden_act", "gelu_pytorch_tanh"),
  ),
  _family(
    "Gemma2ForCausalLM",
    "gemma2",
    tied=True,
    head_dim=256,
    fixed=_LATER_GEMMA,
    settings=(
      *_ATTENTION_BIAS,
      _QUERY_SCALAR,
      _cap("attn_logit_softcapping", "attention_softcap", 50.0),
      _cap("final_logit_softcapping", "logit_softcap", 30.0),
    ),
    activation=("hidden_activation", "gelu_pytorch_tanh"),
    window=4096,
    period=2,
    layer_types=True,
  ),
  _family(
    "Gemma3ForCausalLM",
    "gemma3_text",
    tied=True,
    head_dim=256,
    fixed=_LATER_GEMMA | {"qk_norm": "head"},
    settings=(
      *_ATTENTION_BIAS,
      _QUERY_SCALAR,
      _cap("final_logit_softcapping", "logit_softcap", 0.0),
    ),
    only={"attn_logit_softcapping": None},  # transformers ignores it
    activation=("hidden_activation", "gelu_pytorch_tanh"),
    window=4096,
    period=6,
    layer_types=True,
    theta=1_000_000.0,
    local_theta=10_000.0,
    reward_model="Gemma3TextForSequenceClassification",  # the plain name is for images too
  ),
)


def find_family(raw: Mapping[str, Any]) -> Family:
  """Finds the architecture of a model by its `config.json`.

  Args:
    raw: contents of the file.

  Returns:
    An entry of `FAMILIES`.

  Raises:
    ValueError: if the architecture is not supported, or has another `model_type`.
  """
  name = (raw.get("architectures") or [raw.get("model_type")])[0]
  for family in FAMILIES:
    if name in (family.architecture, family.model_type):
      break
  else:
    supported = ", ".join(family.architecture for family in FAMILIES)
    raise ValueError(f"architecture {name} is not supported; supported are {supported}")
  model_type = raw.get("model_type", family.model_type)
  if model_type != family.model_type:
    raise ValueError(
      f"model_type is {model_type}; that of {family.architecture} is {family.model_type}"
    )
  return family


def read_activation(raw: Mapping[str, Any], family: Family) -> str:
  """Reads the activation of the gate.

  Raises:
    ValueError: if the decoder does not have the activation.
  """
  name, default = family.activation
  value = raw.get(name) or default
  if family.model_type == "gemma" and value == "gelu":
    value = default  # the first files of Gemma say so, and mean the approximation
  if value not in _ACTIVATIONS:
    supported = ", ".join(_ACTIVATIONS)
    raise ValueError(
      f"{name} is {value}: activation {value} is not supported; supported are {supported}"
    )
  return _ACTIVATIONS[value]


def write_activation(activation: str, family: Family) -> dict[str, str]:
  """Writes the setting of the activation."""
  (value,) = (theirs for theirs, ours in _ACTIVATIONS.items() if ours == activation)
  return {family.activation[0]: value}
