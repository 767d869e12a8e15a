"""Configuration of a decoder."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax

from pgax.errors import check_each
from pgax.models.rope import RopeScaling

ACTIVATIONS = ("silu", "gelu_tanh")
QK_NORMS = ("none", "head", "projection")
NORM_PLACEMENTS = ("pre", "post", "sandwich")
ATTENTION = ("auto", "einsum", "blockwise", "kernel")
DTYPES = ("float32", "bfloat16", "auto")
_CHOICES = {
  "activation": ACTIVATIONS,
  "dtype": DTYPES,
  "qk_norm": QK_NORMS,
  "norm_placement": NORM_PLACEMENTS,
  "attention": ATTENTION,
}
_SIZES = ("vocab_size", "num_layers", "embed_dim", "num_heads", "num_kv_heads")
_SIZES += ("head_dim", "mlp_dim")
_MAX_SIZE = 2**31  # tokens and other indices are int32
_POSITIVE = ("rope_theta", "norm_eps", "embedding_scale", "residual_scale")
_POSITIVE += ("logit_divisor",)
_POSITIVE_OR_NONE = ("query_scalar", "attention_softcap", "logit_softcap")
_POSITIVE_OR_NONE += ("sliding_window", "local_rope_theta")


@dataclasses.dataclass(frozen=True)
class DecoderConfig:
  """Sizes and architectural switches of a decoder.

  Attributes:
    vocab_size: number of token ids.
    num_layers: number of transformer blocks.
    embed_dim: width of the residual stream.
    num_heads: number of query heads.
    num_kv_heads: number of key and value heads; must divide `num_heads`.
    head_dim: width of a head; even, because RoPE rotates pairs of features.
    mlp_dim: width of the gated feed-forward layer, or of each expert.
    rope_theta: base of the RoPE wavelengths.
    norm_eps: number added to the mean square in RMSNorm.
    tie_embeddings: whether the output layer is the transposed embedding.
    scale_embeddings: whether embeddings are multiplied by `sqrt(embed_dim)`.
    embedding_scale: a further factor of embeddings.
    residual_scale: factor of the outputs of attention and feed-forward layer.
    activation: activation of the gate, `silu` (SwiGLU) or `gelu_tanh` (GeGLU).
    qkv_bias: whether the projections to queries, keys and values have biases.
    out_bias: whether the output projection of attention has a bias.
    mlp_bias: whether the feed-forward layer has biases.
    qk_norm: input of the RMSNorm before RoPE: `none`, the queries and keys of each
      `head`, or the `projection` to all heads.
    unit_offset_norm: whether RMSNorm multiplies by `1 + scale` instead of by `scale`.
    norm_placement: sides of attention and feed-forward layer that are normalized: their
      inputs (`pre`), their outputs (`post`) or both (`sandwich`).
    query_scalar: attention scores are multiplied by `query_scalar**-0.5`; 0 uses
      `head_dim`.
    attention_softcap: attention scores are capped to `c * tanh(scores / c)`; 0 for no cap.
    logit_softcap: logits are capped to `c * tanh(logits / c)`; 0 for no cap.
    logit_divisor: logits are divided by it, before the cap.
    sliding_window: number of tokens, itself included, that a token attends to in a sliding
      layer; 0 for no sliding layers.
    sliding_layers: whether each layer is a sliding one; empty for all layers, given a
      window.
    local_rope_theta: base of the RoPE wavelengths in sliding layers, which are then not
      scaled; 0 uses `rope_theta` and `rope_scaling` in all layers.
    rope_scaling: scaling of the RoPE wavelengths.
    rope_fraction: fraction of the features of a head, the first ones, that RoPE rotates.
    rope_layers: whether RoPE is applied in each layer; empty for all layers.
    num_experts: number of experts that replace the feed-forward layer; 0 for none.
    experts_per_token: number of experts that compute each token.
    normalize_router: whether the router's weights of a token's experts sum to 1.
    dtype: dtype of products, activations and cache: `float32`, `bfloat16`, or `auto`, which
      is float32 on CPUs and bfloat16 elsewhere. Norms, softmax and logits are always
      float32.
    attention: implementation of attention: `einsum` holds all scores at once, `blockwise`
      those of a block, so that its memory is linear in the length. `kernel` is cuDNN's on
      NVIDIA GPUs and splash attention on TPUs: it reads texts, and leaves decoding to
      `einsum`; it has neither softcaps nor sliding layers, and on GPUs requires bfloat16.
      `auto` chooses by the device and the number of queries, and takes a kernel only if it
      agrees with `einsum` on the device.
    remat: whether the backward pass recomputes each layer's activations instead of keeping
      them.
  """

  vocab_size: int
  num_layers: int
  embed_dim: int
  num_heads: int
  num_kv_heads: int
  head_dim: int
  mlp_dim: int
  rope_theta: float = 10_000.0
  norm_eps: float = 1e-6
  tie_embeddings: bool = True
  scale_embeddings: bool = True
  embedding_scale: float = 1.0
  residual_scale: float = 1.0
  activation: str = "silu"
  qkv_bias: bool = False
  out_bias: bool = False
  mlp_bias: bool = False
  qk_norm: str = "none"
  unit_offset_norm: bool = False
  norm_placement: str = "pre"
  query_scalar: float = 0.0
  attention_softcap: float = 0.0
  logit_softcap: float = 0.0
  logit_divisor: float = 1.0
  sliding_window: int = 0
  sliding_layers: tuple[bool, ...] = ()
  local_rope_theta: float = 0.0
  rope_scaling: RopeScaling = RopeScaling()
  rope_fraction: float = 1.0
  rope_layers: tuple[bool, ...] = ()
  num_experts: int = 0
  experts_per_token: int = 0
  normalize_router: bool = True
  dtype: str = "float32"
  attention: str = "auto"
  remat: bool = False

  def __post_init__(self):
    # A list, from JSON for instance, would leave the configuration without a hash.
    for name in ("sliding_layers", "rope_layers"):
      object.__setattr__(self, name, tuple(getattr(self, name)))
    self._check(_SIZES, lambda x: 1 <= x < _MAX_SIZE, f"at least 1, and below {_MAX_SIZE}")
    if self.num_heads % self.num_kv_heads:
      raise ValueError(
        f"model.num_kv_heads is {self.num_kv_heads}; it must divide "
        f"model.num_heads, which is {self.num_heads}"
      )
    for name, allowed in _CHOICES.items():
      self._check([name], lambda x, y=allowed: x in y, f"one of {', '.join(allowed)}")
    self._check(_POSITIVE_OR_NONE, lambda x: x >= 0, "positive, or 0 for none")
    self._check(_POSITIVE, lambda x: x > 0, "positive")
    self._check_layers()
    self._check_rope()
    self._check_experts()

  def _check(
    self, names: Sequence[str], is_allowed: Callable[[Any], bool], must: str
  ) -> None:
    check_each(self, names, is_allowed, must, "model.")

  def _check_layers(self):
    for name in ("sliding_layers", "rope_layers"):
      entries = len(getattr(self, name))
      if entries not in (0, self.num_layers):
        raise ValueError(
          f"model.{name} has {entries} entries; it must be empty or have one for each of "
          f"the {self.num_layers} layers"
        )
    if any(self.sliding_layers) and not self.sliding_window:
      raise ValueError(
        "model.sliding_layers has sliding layers and model.sliding_window is 0; it must be "
        "positive"
      )
    if self.local_rope_theta and not self.sliding_window:
      raise ValueError(
        f"model.local_rope_theta is {self.local_rope_theta} and model.sliding_window is 0; "
        "it applies to sliding layers only, so sliding_window must be positive"
      )

  def _check_rope(self):
    self._check(["head_dim"], lambda x: x % 2 == 0, "even for RoPE")
    if not 0 < self.rope_fraction <= 1 or self.rope_dim % 2 or not self.rope_dim:
      raise ValueError(
        f"model.rope_fraction is {self.rope_fraction}; it must be above 0, at most 1, and "
        f"an even number of the {self.head_dim} features of a head"
      )
    factors = len(self.rope_scaling.factors)
    if factors and factors != self.rope_dim // 2:
      raise ValueError(
        f"model.rope_scaling.factors has {factors} entries; it must have one for each of "
        f"the {self.rope_dim // 2} pairs of rotated features"
      )

  def _check_experts(self):
    self._check(["num_experts"], lambda x: x >= 0, "at least 0")
    least = min(self.num_experts, 1)
    if not least <= self.experts_per_token <= self.num_experts:
      raise ValueError(
        f"model.experts_per_token is {self.experts_per_token}; it must be from {least} to "
        f"model.num_experts, which is {self.num_experts}"
      )
    if self.num_experts and self.mlp_bias:
      raise ValueError("model.mlp_bias is True; it must be False with experts")

  @property
  def compute_dtype(self) -> str:
    """The dtype of products and activations on the devices there are."""
    if self.dtype != "auto":
      return self.dtype
    return "float32" if jax.default_backend() == "cpu" else "bfloat16"

  @property
  def is_sliding(self) -> tuple[bool, ...]:
    """True for each sliding layer."""
    return self.sliding_layers or (self.sliding_window > 0,) * self.num_layers

  @property
  def rope_dim(self) -> int:
    """Number of features of a head that RoPE rotates."""
    return int(self.head_dim * self.rope_fraction)
