"""The supported architectures of transformers, and how their settings map to a decoder."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

_ACTIVATIONS = {"silu": "silu", "gelu_pytorch_tanh": "gelu_tanh"}


def _same(value: Any) -> Any:
  return value


def _rounded(value: float) -> float:
  """Removes the rounding error of a power and its inverse."""
  return float(f"{value:.12g}")


@dataclasses.dataclass(frozen=True)
class Setting:
  """A setting of `config.json`, and the field of a `DecoderConfig` that it decides.

  Attributes:
    name: name of the setting.
    field: name of the field.
    read: converts the setting to the field.
    write: converts the field to the setting.
  """

  name: str
  field: str
  read: Callable[[Any], Any] = _same
  write: Callable[[Any], Any] = _same


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
  """An architecture of transformers: how its settings map to a `DecoderConfig`.

  Attributes:
    architecture: name of the class in transformers.
    model_type: short name of the architecture.
    fixed: fields of a `DecoderConfig` that all models of the architecture share.
    settings: settings that the architecture has besides those that all have.
    only: settings whose every other value the decoder has no equivalent of.
    activation: name of the setting of the activation.
    windowed: whether it may have sliding layers.
    switched: whether the window requires `use_sliding_window`.
    layer_types: whether sliding layers are listed by `layer_types`; otherwise all are.
    unrotated: whether some layers may have no RoPE.
    local_theta: whether sliding layers have a separate base of the RoPE wavelengths.
    rope_fraction: whether `partial_rotary_factor` may be other than 1.
    layout: names of tensors.
    reward_model: name of the class that puts a classification head on the same decoder;
      empty if transformers has none.
  """

  architecture: str
  model_type: str
  fixed: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  settings: tuple[Setting, ...] = ()
  only: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  activation: str = "hidden_act"
  windowed: bool = False
  switched: bool = False
  layer_types: bool = False
  unrotated: bool = False
  local_theta: bool = False
  rope_fraction: bool = False
  layout: Layout = Layout()
  reward_model: str = ""


def _family(architecture: str, model_type: str, **differences: Any) -> Family:
  """Builds a `Family`; most have a reward model of the same name."""
  reward_model = architecture.replace("ForCausalLM", "ForSequenceClassification")
  return Family(architecture, model_type, **{"reward_model": reward_model} | differences)


_ATTENTION_BIAS = (
  Setting("attention_bias", "qkv_bias"),
  Setting("attention_bias", "out_bias"),
)
_BIASES = (*_ATTENTION_BIAS, Setting("mlp_bias", "mlp_bias"))
_GEMMA = {"unit_offset_norm": True, "scale_embeddings": True}
_LATER_GEMMA = _GEMMA | {"norm_placement": "sandwich"}


def _whole(value: float) -> float | int:
  """A number without a fraction as a whole one, which transformers expects of some."""
  return int(value) if float(value).is_integer() else value


def _positive(name: str) -> Callable[[float], float]:
  """Returns a function that checks a scale of scores, for which 0 is not the default."""

  def check(value: float) -> float:
    if not value > 0:
      raise ValueError(f"{name} is {value}; it must be a positive number")
    return float(value)

  return check


_SCALAR, _MULTIPLIER = "query_pre_attn_scalar", "attention_multiplier"
_QUERY_SCALAR = Setting(_SCALAR, "query_scalar", _positive(_SCALAR), _whole)


def _cap(name: str, field: str) -> Setting:
  """A cap of scores or logits: null in the file is 0 here."""
  return Setting(name, field, lambda cap: cap or 0.0, lambda cap: cap or None)


_GRANITE = (
  Setting("embedding_multiplier", "embedding_scale", float),
  Setting("residual_multiplier", "residual_scale", float),
  Setting("logits_scaling", "logit_divisor", float),
  # Scores are multiplied by `query_scalar**-0.5`.
  Setting(
    _MULTIPLIER,
    "query_scalar",
    lambda factor: _rounded(_positive(_MULTIPLIER)(factor) ** -2),
    lambda scalar: _rounded(scalar**-0.5),
  ),
)

FAMILIES = (
  _family("LlamaForCausalLM", "llama", settings=_BIASES),
  _family("MistralForCausalLM", "mistral", windowed=True),
  # transformers' `AutoModel` takes a Mistral with `layer_types` for one of these.
  _family("MinistralForCausalLM", "ministral", windowed=True, layer_types=True),
  _family(
    "Qwen2ForCausalLM",
    "qwen2",
    fixed={"qkv_bias": True},
    windowed=True,
    switched=True,
    layer_types=True,
  ),
  _family(
    "Qwen3ForCausalLM",
    "qwen3",
    fixed={"qk_norm": "head"},
    settings=_ATTENTION_BIAS,
    windowed=True,
    switched=True,
    layer_types=True,
  ),
  _family(
    "Qwen3MoeForCausalLM",
    "qwen3_moe",
    fixed={"qk_norm": "head"},
    settings=(
      *_ATTENTION_BIAS,
      Setting("moe_intermediate_size", "mlp_dim"),
      Setting("num_experts", "num_experts"),
      Setting("num_experts_per_tok", "experts_per_token"),
      Setting("norm_topk_prob", "normalize_router"),
    ),
    only={"decoder_sparse_step": 1, "mlp_only_layers": []},
    windowed=True,
    switched=True,
  ),
  _family(
    "MixtralForCausalLM",
    "mixtral",
    settings=(
      Setting("num_local_experts", "num_experts"),
      Setting("num_experts_per_tok", "experts_per_token"),
    ),
    only={"router_jitter_noise": 0.0},
    windowed=True,
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
    windowed=True,
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
    settings=_BIASES,
    windowed=True,
    switched=True,
    layer_types=True,
    unrotated=True,
  ),
  _family(
    "Olmo2ForCausalLM",
    "olmo2",
    fixed={"qk_norm": "projection", "norm_placement": "post"},
    settings=_ATTENTION_BIAS,
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
    fixed=_GEMMA,
    settings=_ATTENTION_BIAS,
  ),
  _family(
    "Gemma2ForCausalLM",
    "gemma2",
    fixed=_LATER_GEMMA,
    settings=(
      *_ATTENTION_BIAS,
      _QUERY_SCALAR,
      _cap("attn_logit_softcapping", "attention_softcap"),
      _cap("final_logit_softcapping", "logit_softcap"),
    ),
    activation="hidden_activation",
    windowed=True,
    layer_types=True,
  ),
  _family(
    "Gemma3ForCausalLM",
    "gemma3_text",
    fixed=_LATER_GEMMA | {"qk_norm": "head"},
    settings=(
      *_ATTENTION_BIAS,
      _QUERY_SCALAR,
      _cap("final_logit_softcapping", "logit_softcap"),
    ),
    only={"attn_logit_softcapping": None},  # transformers ignores it
    activation="hidden_activation",
    windowed=True,
    layer_types=True,
    local_theta=True,
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
  names = raw.get("architectures") or [raw.get("model_type")]
  if not isinstance(names, list) or not all(isinstance(x, str | None) for x in names):
    raise ValueError(f"architectures is {names!r}; it must be a list of strings")
  name = names[0]
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


def read_activation(name: str, value: str, family: Family) -> str:
  """Converts the activation of the gate.

  Args:
    name: name of the setting.
    value: its value.
    family: the architecture.

  Raises:
    ValueError: if the decoder does not have the activation.
  """
  if family.model_type == "gemma" and value == "gelu":
    value = "gelu_pytorch_tanh"  # the first files of Gemma mean the approximation
  if value not in _ACTIVATIONS:
    supported = ", ".join(_ACTIVATIONS)
    raise ValueError(
      f"{name} is {value}: activation {value} is not supported; supported are {supported}"
    )
  return _ACTIVATIONS[value]


def write_activation(activation: str, family: Family) -> dict[str, str]:
  """Writes the setting of the activation."""
  (value,) = (theirs for theirs, ours in _ACTIVATIONS.items() if ours == activation)
  return {family.activation: value}
