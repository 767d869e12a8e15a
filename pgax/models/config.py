"""The shape of a decoder."""

import dataclasses


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
    mlp_dim: width of the SwiGLU layer.
    rope_theta: base of the rotary wavelengths.
    norm_eps: added to the mean square in RMSNorm.
    tie_embeddings: whether the output layer is the transposed embedding.
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

  def __post_init__(self):
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
