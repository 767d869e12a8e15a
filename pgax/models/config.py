"""The shape of a decoder."""

import dataclasses

from pgax.models.rope import RopeScaling

ACTIVATIONS = ("silu", "gelu_tanh")
DTYPES = ("float32", "bfloat16")


@dataclasses.dataclass(frozen=True)
class DecoderConfig:
  """Sizes and switches of the decoder; the default has about 0.1 M parameters.

  Attributes:
    vocab_size: number of token ids.
    num_layers: number of blocks.
    embed_dim: width of the residual stream.
    num_heads: number of query heads.
    num_kv_heads: number of key and value heads; must divide `num_heads`.
    head_dim: width of a head; even, because RoPE turns pairs.
    mlp_dim: width of the gated feed-forward layer.
    rope_theta: base of the rotary wavelengths.
    norm_eps: added to the mean square in RMSNorm.
    tie_embeddings: whether the output layer is the transposed embedding.
    scale_embeddings: whether embeddings are multiplied by `sqrt(embed_dim)`.
    activation: of the gate, `silu` (SwiGLU) or `gelu_tanh` (GeGLU).
    qkv_bias: whether queries, keys and values have a bias.
    out_bias: whether attention's output has a bias.
    mlp_bias: whether the feed-forward layer has biases.
    qk_norm: whether RMSNorm is applied to every head's queries and keys before RoPE.
    unit_offset_norm: whether RMSNorm multiplies by `1 + scale` instead of by `scale`.
    post_norms: whether attention's and the feed-forward layer's outputs are normalised too.
    query_scalar: scores are multiplied by `query_scalar**-0.5`; 0 for `head_dim`.
    attention_softcap: scores become `cap * tanh(scores / cap)`; 0 for no cap.
    logit_softcap: likewise the logits.
    sliding_window: number of tokens, itself included, that a token sees in a sliding layer;
      0 for no sliding layers.
    sliding_layers: for each layer whether it slides; empty for all, if there is a window.
    local_rope_theta: base of the wavelengths in sliding layers, which are then not scaled;
      0 for `rope_theta` and `rope_scaling` there too.
    rope_scaling: how the wavelengths are stretched.
    dtype: of activations and cache, `float32` or `bfloat16`. Parameters, norms, softmax and
      logits are float32 either way.
    remat: whether the backward pass computes each layer anew instead of keeping it.
  """

  vocab_size: int = 259
  num_layers: int = 2
  embed_dim: int = 64
  num_heads: int = 4
  num_kv_heads: int = 2
  head_dim: int = 16
  mlp_dim: int = 192
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
  remat: bool = False

  def __post_init__(self):
    # A list, from JSON say, would leave the configuration without a hash.
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
      if value < 1:
        raise ValueError(f"model.{name} is {value}; it must be at least 1")
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
    for name, allowed in (("activation", ACTIVATIONS), ("dtype", DTYPES)):
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
        "without a window there is no layer that it is for"
      )

  @property
  def slides(self) -> tuple[bool, ...]:
    """For each layer whether it slides."""
    return self.sliding_layers or (self.sliding_window > 0,) * self.num_layers
