"""Which tensor of a checkpoint is which parameter: names, shapes and layouts."""

import dataclasses
import math

import numpy as np

from pgax.models.config import DecoderConfig

EMBEDDING, UNEMBEDDING = "model.embed_tokens.weight", "lm_head.weight"


@dataclasses.dataclass(frozen=True)
class Tensor:
  """A tensor of a checkpoint, and the parameter that it is.

  Attributes:
    name: in the checkpoint.
    path: of the parameter, from `params` on.
    shape: of the parameter, without the axis of layers.
    inputs: number of leading axes of `shape` that are multiplied with, of a linear layer,
      whose weight lies in the checkpoint as `[outputs, inputs]`; 0 for other tensors.
    layer: which of the stacked layers it is; None for what is not stacked.
  """

  name: str
  path: tuple[str, ...]
  shape: tuple[int, ...]
  inputs: int = 0
  layer: int | None = None

  @property
  def file_shape(self) -> tuple[int, ...]:
    """Shape in the checkpoint."""
    if self.inputs:
      return math.prod(self.shape[self.inputs :]), math.prod(self.shape[: self.inputs])
    # The embedding is as it is, and a bias of heads is flat.
    return self.shape if self.name == EMBEDDING else (math.prod(self.shape),)

  def from_file(self, array: np.ndarray) -> np.ndarray:
    """The parameter's value; a view where possible."""
    return (array.T if self.inputs else array).reshape(self.shape)

  def to_file(self, array: np.ndarray) -> np.ndarray:
    """The tensor of the checkpoint, contiguous."""
    if self.inputs:
      array = array.reshape(self.file_shape[::-1]).T
    return np.ascontiguousarray(array).reshape(self.file_shape)


def _of_layer(config: DecoderConfig) -> list[Tensor]:
  """Tensors of a layer; names from within it, paths from within `blocks`."""
  c = config
  q, kv, e, m = (
    (c.num_heads, c.head_dim),
    (c.num_kv_heads, c.head_dim),
    c.embed_dim,
    c.mlp_dim,
  )
  linear = [
    ("self_attn.q_proj", "attention", "query", (e, *q), 1, c.qkv_bias),
    ("self_attn.k_proj", "attention", "key", (e, *kv), 1, c.qkv_bias),
    ("self_attn.v_proj", "attention", "value", (e, *kv), 1, c.qkv_bias),
    ("self_attn.o_proj", "attention", "out", (*q, e), 2, c.out_bias),
    ("mlp.gate_proj", "mlp", "gate", (e, m), 1, c.mlp_bias),
    ("mlp.up_proj", "mlp", "up", (e, m), 1, c.mlp_bias),
    ("mlp.down_proj", "mlp", "down", (m, e), 1, c.mlp_bias),
  ]
  tensors = []
  for name, part, ours, shape, inputs, has_bias in linear:
    tensors.append(Tensor(f"{name}.weight", (part, ours), shape, inputs))
    if has_bias:
      tensors.append(Tensor(f"{name}.bias", (part, f"{ours}_bias"), shape[inputs:]))
  norms = {"input_layernorm": "attention_norm", "post_attention_layernorm": "mlp_norm"}
  if c.post_norms:  # the same name is another norm then
    norms = {
      "input_layernorm": "attention_norm",
      "post_attention_layernorm": "attention_post_norm",
      "pre_feedforward_layernorm": "mlp_norm",
      "post_feedforward_layernorm": "mlp_post_norm",
    }
  for name, ours in norms.items():
    tensors.append(Tensor(f"{name}.weight", (ours, "scale"), (e,)))
  if c.qk_norm:
    for name, ours in (("q_norm", "query_norm"), ("k_norm", "key_norm")):
      path = ("attention", ours, "scale")
      tensors.append(Tensor(f"self_attn.{name}.weight", path, (c.head_dim,)))
  return tensors


def tensors(config: DecoderConfig) -> list[Tensor]:
  """Every tensor of a checkpoint, one parameter after the other.

  Args:
    config: of the decoder.

  Returns:
    The tensors; those of a stacked parameter follow each other, layer by layer.
  """
  c = config
  whole = [Tensor(EMBEDDING, ("embedding",), (c.vocab_size, c.embed_dim))]
  if not c.tie_embeddings:
    shape = (c.embed_dim, c.vocab_size)
    whole.append(Tensor(UNEMBEDDING, ("unembedding",), shape, inputs=1))
  whole.append(Tensor("model.norm.weight", ("final_norm", "scale"), (c.embed_dim,)))
  stacked = [
    dataclasses.replace(
      tensor,
      name=f"model.layers.{layer}.{tensor.name}",
      path=("blocks", *tensor.path),
      layer=layer,
    )
    for tensor in _of_layer(config)
    for layer in range(c.num_layers)
  ]
  return whole + stacked
