"""Configuration of a decoder."""

import dataclasses

from pgax.models.rope import RopeScaling

ACTIVATIONS = ("silu", "gelu_tanh")
ATTENTION = ("auto", "einsum", "blockwise")
DTYPES = ("float32", "bfloat16")
_MAX_SIZE = 2**31  # tokens and other indices are int32


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
    mlp_dim: width of the gated feed-forward layer.
    rope_theta: base of the RoPE wavelengths.
    norm_eps: number added to the mean square in RMSNorm.
    tie_embeddings: whether the output layer is the transposed embedding.
    scale_embeddings: whether embeddings are multiplied by `sqrt(embed_dim)`.
    activation: activation of the gate, `silu` (SwiGLU) or `gelu_tanh` (GeGLU).
    qkv_bias: whether the projections to queries, keys and values have biases.
    out_bias: whether the output projection of attention has a bias.
    mlp_bias: whether the feed-forward layer has biases.
    qk_norm: whether RMSNorm is applied to the queries and keys of each head before RoPE.
    unit_offset_norm: whether RMSNorm multiplies by `1 + scale` instead of by `scale`.
    post_norms: whether the outputs of attention and feed-forward layer are normalized too.
    query_scalar: attention scores are multiplied by `query_scalar**-0.5`; 0 uses
      `head_dim`.
    attention_softcap: attention scores are capped to `c * tanh(scores / c)`; 0 for no cap.
    logit_softcap: logits are capped to `c * tanh(logits / c)`; 0 for no cap.
    sliding_window: number of tokens, itself included, that a token attends to in a sliding
      layer; 0 for no sliding layers.
    sliding_layers: whether each layer is a sliding one; empty for all layers, given a
      window.
    local_rope_theta: base of the RoPE wavelengths in sliding layers, which are then not
      scaled; 0 uses `rope_theta` and `rope_scaling` in all layers.
    rope_scaling: scaling of the RoPE wavelengths.
    dtype: dtype of activations and cache, `float32` or `bfloat16`. Parameters, norms,
      softmax and logits are always float32.
    attention: how attention is computed: `einsum` holds all scores at once, `blockwise`
      those of a block, so that its memory is linear in the length; `auto` chooses by the
      number of queries.
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
  activation: str = "silu"
  qkv_bias: bool = False
  out_bias: bool = False
  mlp_bias: bool = False
  qk_norm: bool = False
  unit_offset_norm: bool = False
  post_norms: bool = False
  query_scalar: float = 0.0
  attention_softcap: float = 0.0
  logit_softcap: float = 0.0
  sliding_window: int = 0
  sliding_layers: tuple[bool, ...] = ()
  local_rope_theta: float = 0.0
  rope_scaling: RopeScaling = RopeScaling()
  dtype: str = "float32"
  attention: str = "auto"
  remat: bool = False

  def __post_init__(self):
    # A list, from JSON for instance, would leave the configuration without a hash.
    object.__setattr__(self, "sliding_layers", tuple(self.sliding_layers))
    sizes = (
      "vocab_size",
      "num_layers",
      "embed_dim",
      "num_heads",
      "num_kv_heads",
      "head_dim",
      "mlp_dim",
    )
    for name in sizes:
      value = vars(self)[name]
      if not 1 <= value < _MAX_SIZE:
        raise ValueError(
          f"model.{name} is {value}; it must be at least 1, and below {_MAX_SIZE}"
        )
    if self.num_heads % self.num_kv_heads:
      raise ValueError(
        f"model.num_kv_heads is {self.num_kv_heads}; it must divide "
        f"model.num_heads, which is {self.num_heads}"
      )
    if not self.rope_theta > 0 or not self.norm_eps > 0:
      raise ValueError(
        f"model.rope_theta is {self.rope_theta} and model.norm_eps is {self.norm_eps}; "
        "both must be positive"
      )
    if self.head_dim % 2:
      raise ValueError(f"model.head_dim is {self.head_dim}; it must be even for RoPE")
    self._check_switches()

  def _check_switches(self):
    for name, allowed in (
      ("activation", ACTIVATIONS),
      ("dtype", DTYPES),
      ("attention", ATTENTION),
    ):
      value = vars(self)[name]
      if value not in allowed:
        raise ValueError(
          f"model.{name} is {value!r}; it must be one of {', '.join(allowed)}"
        )
    or_zero = (
      "query_scalar",
      "attention_softcap",
      "logit_softcap",
      "sliding_window",
      "local_rope_theta",
    )
    for name in or_zero:
      value = vars(self)[name]
      if not value >= 0:  # also catches nan
        raise ValueError(f"model.{name} is {value}; it must be positive, or 0 for none")
    if len(self.sliding_layers) not in (0, self.num_layers):
      raise ValueError(
        f"model.sliding_layers has {len(self.sliding_layers)} entries; it must be empty or "
        f"have one for each of the {self.num_layers} layers"
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

  @property
  def is_sliding(self) -> tuple[bool, ...]:
    """Whether each layer is a sliding one."""
    return self.sliding_layers or (self.sliding_window > 0,) * self.num_layers
