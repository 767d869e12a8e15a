"""Small random models of every family, built by transformers."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import torch
import transformers

VOCAB, WINDOW = 160, 5  # the window is shorter than every text in the tests

_SIZES = {
  "vocab_size": VOCAB,
  "hidden_size": 32,
  "intermediate_size": 40,
  "num_hidden_layers": 3,
  "num_attention_heads": 4,
  "num_key_value_heads": 2,
  "max_position_embeddings": 256,
  "bos_token_id": 1,
  "eos_token_id": 2,
  "pad_token_id": 0,
}
_YARN = {
  "rope_type": "yarn",
  "rope_theta": 1e4,
  "factor": 4.0,
  "original_max_position_embeddings": 16,
}
_LLAMA3 = {
  "rope_type": "llama3",
  "rope_theta": 500.0,
  "factor": 8.0,
  "low_freq_factor": 1.0,
  "high_freq_factor": 4.0,
  "original_max_position_embeddings": 32,
}
_LONGROPE = {
  "rope_type": "longrope",
  "rope_theta": 1e4,
  "short_factor": [1.0, 1.5, 2.5],
  "long_factor": [2.0, 3.0, 8.0],
  "partial_rotary_factor": 0.75,
  "original_max_position_embeddings": 64,
}
_GEMMA = {"head_dim": 12, "query_pre_attn_scalar": 20, "sliding_window": WINDOW}


@dataclasses.dataclass(frozen=True)
class Case:
  """A model: classes in transformers, and settings."""

  name: str
  config: Callable
  model: Callable
  settings: dict

  def make(self, seed: int = 0) -> torch.nn.Module:
    """Builds the model; no parameter is 0 or 1."""
    torch.manual_seed(seed)
    sizes = _SIZES | {"attn_implementation": "eager"}
    model = self.model(self.config(**(sizes | self.settings))).eval()
    with torch.no_grad():
      for name, parameter in model.named_parameters():
        noise = torch.randn_like(parameter)
        if parameter.ndim > 1 and "embed" not in name:
          parameter.copy_(noise * 1.4 * parameter.shape[1] ** -0.5)
        else:
          # With larger tied embeddings the model would only repeat the last token.
          parameter.add_((0.1 if "embed" in name else 0.3) * noise)
    return model


def _case(name: str, family: str, **settings) -> Case:
  config = getattr(transformers, f"{family}Config")
  model = getattr(transformers, f"{family.removesuffix('Text')}ForCausalLM")
  return Case(name, config, model, settings)


CASES = (
  _case("llama", "Llama", rope_parameters=_LLAMA3, attention_bias=True, mlp_bias=True),
  _case(
    "llama_linear_tied",
    "Llama",
    rope_parameters={"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0},
    tie_word_embeddings=True,
  ),
  _case("mistral", "Mistral", sliding_window=WINDOW, head_dim=16),
  _case("qwen2_tied", "Qwen2", tie_word_embeddings=True),
  _case(
    "qwen2_yarn_sliding",
    "Qwen2",
    rope_parameters=_YARN,
    use_sliding_window=True,
    sliding_window=WINDOW,
    max_window_layers=2,
  ),
  _case("qwen3", "Qwen3", head_dim=16, rope_parameters=_YARN | {"truncate": False}),
  _case(
    "gemma2", "Gemma2", **_GEMMA, attn_logit_softcapping=3.0, final_logit_softcapping=4.0
  ),
  _case(
    "gemma3",
    "Gemma3Text",
    **_GEMMA,
    layer_types=["sliding_attention", "sliding_attention", "full_attention"],
    rope_parameters={
      "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
      "full_attention": {"rope_type": "linear", "rope_theta": 1e4, "factor": 8.0},
    },
  ),
  _case("gemma3_untied", "Gemma3Text", **_GEMMA, tie_word_embeddings=False),
  _case(
    "ministral",
    "Ministral",
    head_dim=16,
    sliding_window=WINDOW,
    layer_types=["sliding_attention", "full_attention", "sliding_attention"],
  ),
  _case("gemma", "Gemma", head_dim=12, attention_bias=True),
  _case(
    "phi3",
    "Phi3",
    sliding_window=WINDOW,
    rope_parameters={
      "rope_type": "default",
      "rope_theta": 1e4,
      "partial_rotary_factor": 0.5,
    },
  ),
  _case(
    "phi3_longrope",
    "Phi3",
    rope_parameters=_LONGROPE,
    original_max_position_embeddings=64,
    tie_word_embeddings=True,
  ),
  _case(
    "smollm3",
    "SmolLM3",
    no_rope_layer_interval=2,
    use_sliding_window=True,
    sliding_window=WINDOW,
    attention_bias=True,
    mlp_bias=True,
  ),
  _case("olmo2", "Olmo2", rope_parameters=_YARN),
  _case(
    "granite",
    "Granite",
    embedding_multiplier=12.0,
    residual_multiplier=0.22,
    attention_multiplier=0.1,
    logits_scaling=3.0,
    attention_bias=True,
  ),
  _case(
    "qwen3_moe",
    "Qwen3Moe",
    head_dim=16,
    moe_intermediate_size=12,
    num_experts=6,
    num_experts_per_tok=3,
  ),
  _case(
    "mixtral",
    "Mixtral",
    intermediate_size=20,
    num_local_experts=4,
    sliding_window=WINDOW,
    rope_parameters={"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0},
  ),
)


def write(case: Case, path: Path) -> torch.nn.Module:
  """Saves a model as transformers does, and returns it."""
  model = case.make()
  model.save_pretrained(path)
  return model
