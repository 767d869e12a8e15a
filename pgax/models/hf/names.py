"""Maps the tensors of a checkpoint to parameters: names, shapes and layouts."""

import dataclasses
import math

import numpy as np

from pgax.models.config import DecoderConfig

EMBEDDING, UNEMBEDDING = "model.embed_tokens.weight", "lm_head.weight"


@dataclasses.dataclass(frozen=True)
class Tensor:
  """A tensor of a checkpoint, and the parameter that it holds.

  Attributes:
    name: name in the checkpoint.
    path: path of the parameter below `params`.
    shape: shape of the parameter, without the axis of layers.
    inputs: number of input axes, which lead in `shape`, of the weight of a linear layer,
      which the checkpoint saves as `[outputs, inputs]`; 0 for other tensors.
    layer: index among the stacked layers; None for parameters that are not stacked.
  """

  name: str
  path: tuple[str, ...]
  shape: tuple[int, ...]
  inputs: int = 0
  layer: int | None = None

  @property
  def file_shape(self) -> tuple[int, ...]:
    """The shape in the checkpoint."""
    if self.inputs:
      return math.prod(self.shape[self.inputs :]), math.prod(self.shape[: self.inputs])
    # The embedding has the same shape, and biases of heads are flat.
    return self.shape if self.name == EMBEDDING else (math.prod(self.shape),)

  def from_file(self, array: np.ndarray) -> np.ndarray:
    """Converts the tensor to the parameter, as a view if possible."""
    return (array.T if self.inputs else array).reshape(self.shape)

  def to_file(self, array: np.ndarray) -> np.ndarray:
    """Converts the parameter to the tensor, contiguous."""
    if self.inputs:
      array = array.reshape(self.file_shape[::-1]).T
    return np.ascontiguousarray(array).reshape(self.file_shape)


def _layer_tensors(config: DecoderConfig) -> list[Tensor]:
  """Lists the tensors of a layer; names are relative to it, paths to `blocks`."""
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
  for name, module, param, shape, inputs, has_bias in linear:
    tensors.append(Tensor(f"{name}.weight", (module, param), shape, inputs))
    if has_bias:
      tensors.append(Tensor(f"{name}.bias", (module, f"{param}_bias"), shape[inputs:]))
  norms = {"input_layernorm": "attention_norm", "post_attention_layernorm": "mlp_norm"}
  if c.post_norms:  # `post_attention_layernorm` is another norm then
    norms = {
      "input_layernorm": "attention_norm",
      "post_attention_layernorm": "attention_post_norm",
      "pre_feedforward_layernorm": "mlp_norm",
      "post_feedforward_layernorm": "mlp_post_norm",
    }
  for name, module in norms.items():
    tensors.append(Tensor(f"{name}.weight", (module, "scale"), (e,)))
  if c.qk_norm:
    for name, module in (("q_norm", "query_norm"), ("k_norm", "key_norm")):
      path = ("attention", module, "scale")
      tensors.append(Tensor(f"self_attn.{name}.weight", path, (c.head_dim,)))
  return tensors


def tensors(config: DecoderConfig) -> list[Tensor]:
  """Lists the tensors of a checkpoint, parameter by parameter.

  Args:
    config: configuration of the decoder.

  Returns:
    The tensors; those of a stacked parameter are adjacent, layer by layer.
  """
  c = config
  unstacked = [Tensor(EMBEDDING, ("embedding",), (c.vocab_size, c.embed_dim))]
  if not c.tie_embeddings:
    shape = (c.embed_dim, c.vocab_size)
    unstacked.append(Tensor(UNEMBEDDING, ("unembedding",), shape, inputs=1))
  unstacked.append(Tensor("model.norm.weight", ("final_norm", "scale"), (c.embed_dim,)))
  stacked = [
    dataclasses.replace(
      tensor,
      name=f"model.layers.{layer}.{tensor.name}",
      path=("blocks", *tensor.path),
      layer=layer,
    )
    for tensor in _layer_tensors(config)
    for layer in range(c.num_layers)
  ]
  return unstacked + stacked
