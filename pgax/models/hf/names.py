"""Maps the tensors of a checkpoint to parameters: names, shapes and layouts."""

import dataclasses
import math
from collections.abc import Iterable

import numpy as np

from pgax.models.config import DecoderConfig
from pgax.models.hf.families import Layout

EMBEDDING, UNEMBEDDING = "model.embed_tokens.weight", "lm_head.weight"


@dataclasses.dataclass(frozen=True)
class Tensor:
  """A tensor of a checkpoint, or some rows of one, and the parameter that they hold.

  Attributes:
    name: name in the checkpoint.
    path: path of the parameter below `params`.
    shape: shape of the parameter, without the axes that it is stacked on.
    inputs: number of input axes, which lead in `shape`, of the weight of a linear layer,
      which the checkpoint saves as `[outputs, inputs]`; 0 for other tensors.
    index: index on the axes that the parameter is stacked on: layer, or layer and expert;
      empty for parameters that are not stacked.
    first_row: first row in the tensor, of a linear layer that is saved with others.
    rows: number of rows of that tensor; 0 for a tensor with one parameter.
  """

  name: str
  path: tuple[str, ...]
  shape: tuple[int, ...]
  inputs: int = 0
  index: tuple[int, ...] = ()
  first_row: int = 0
  rows: int = 0

  @property
  def part_shape(self) -> tuple[int, ...]:
    """The shape in the checkpoint of the rows that hold the parameter."""
    if self.inputs:
      return math.prod(self.shape[self.inputs :]), math.prod(self.shape[: self.inputs])
    # The embedding has the same shape, and biases of heads are flat.
    return self.shape if self.name == EMBEDDING else (math.prod(self.shape),)

  @property
  def file_shape(self) -> tuple[int, ...]:
    """The shape of the tensor in the checkpoint."""
    rows, *columns = self.part_shape
    return self.rows or rows, *columns

  @property
  def part(self) -> slice:
    """The rows that hold the parameter."""
    return slice(self.first_row, self.first_row + self.part_shape[0])

  def from_file(self, array: np.ndarray) -> np.ndarray:
    """Converts the rows to the parameter, as a view if possible."""
    return (array.T if self.inputs else array).reshape(self.shape)

  def to_file(self, array: np.ndarray) -> np.ndarray:
    """Converts the parameter to the rows, contiguous."""
    if self.inputs:
      array = array.reshape(self.part_shape[::-1]).T
    return np.ascontiguousarray(array).reshape(self.part_shape)


# Norms by their place: input and output of attention, input and output of feed-forward.
_NORMS = {
  "pre": {
    "input_layernorm": "attention_norm",
    "post_attention_layernorm": "mlp_norm",
  },
  "post": {
    "post_attention_layernorm": "attention_post_norm",
    "post_feedforward_layernorm": "mlp_post_norm",
  },
  "sandwich": {
    "input_layernorm": "attention_norm",
    "post_attention_layernorm": "attention_post_norm",
    "pre_feedforward_layernorm": "mlp_norm",
    "post_feedforward_layernorm": "mlp_post_norm",
  },
}


def _linear_layers(c: DecoderConfig) -> list[tuple]:
  """Lists name, path, shape, number of input axes and bias of a layer's linear layers."""
  e, m = c.embed_dim, c.mlp_dim
  q, kv = (c.num_heads, c.head_dim), (c.num_kv_heads, c.head_dim)
  linear = [
    ("self_attn.q_proj", ("attention", "query"), (e, *q), 1, c.qkv_bias),
    ("self_attn.k_proj", ("attention", "key"), (e, *kv), 1, c.qkv_bias),
    ("self_attn.v_proj", ("attention", "value"), (e, *kv), 1, c.qkv_bias),
    ("self_attn.o_proj", ("attention", "out"), (*q, e), 2, c.out_bias),
  ]
  if not c.num_experts:
    linear += [
      ("mlp.gate_proj", ("mlp", "gate"), (e, m), 1, c.mlp_bias),
      ("mlp.up_proj", ("mlp", "up"), (e, m), 1, c.mlp_bias),
      ("mlp.down_proj", ("mlp", "down"), (m, e), 1, c.mlp_bias),
    ]
  return linear


def _fuse(tensors: list[Tensor], layout: Layout) -> list[Tensor]:
  """Renames the linear layers that the checkpoint saves as one."""
  named = {tensor.name: tensor for tensor in tensors}
  for fused, names in layout.fused.items():
    parts = [named[f"{name}.weight"] for name in names]
    rows, first = sum(part.part_shape[0] for part in parts), 0
    for part in parts:
      named[part.name] = dataclasses.replace(
        part, name=f"{fused}.weight", first_row=first, rows=rows
      )
      first += part.part_shape[0]
  return list(named.values())


def _expert_tensors(c: DecoderConfig, layout: Layout) -> list[Tensor]:
  """Lists the tensors of router and experts; the index is the expert's."""
  e, m = c.embed_dim, c.mlp_dim
  router = ("experts", "router")
  tensors = [Tensor(f"{layout.router}.weight", router, (e, c.num_experts), 1)]
  params = (("gate", (e, m)), ("up", (e, m)), ("down", (m, e)))
  for name, (param, shape) in zip(layout.experts, params, strict=True):
    tensors += [
      Tensor(f"{name.format(i)}.weight", ("experts", param), shape, 1, (i,))
      for i in range(c.num_experts)
    ]
  return tensors


def _layer_tensors(c: DecoderConfig, layout: Layout) -> list[Tensor]:
  """Lists the tensors of a layer; names are relative to it, paths to `blocks`."""
  tensors = []
  for name, path, shape, inputs, has_bias in _linear_layers(c):
    tensors.append(Tensor(f"{name}.weight", path, shape, inputs))
    if has_bias:
      bias = (path[0], f"{path[1]}_bias")
      tensors.append(Tensor(f"{name}.bias", bias, shape[inputs:]))
  tensors = _fuse(tensors, layout)
  for name, module in _NORMS[c.norm_placement].items():
    tensors.append(Tensor(f"{name}.weight", (module, "scale"), (c.embed_dim,)))
  if c.qk_norm != "none":
    joint = c.qk_norm == "projection"
    for name, module, heads in (("q", "query", c.num_heads), ("k", "key", c.num_kv_heads)):
      path = ("attention", f"{module}_norm", "scale")
      width = heads * c.head_dim if joint else c.head_dim
      tensors.append(Tensor(f"self_attn.{name}_norm.weight", path, (width,)))
  return tensors + (_expert_tensors(c, layout) if c.num_experts else [])


def tensors(config: DecoderConfig, layout: Layout) -> list[Tensor]:
  """Lists the tensors of a checkpoint, parameter by parameter.

  Args:
    config: configuration of the decoder.
    layout: names of tensors that differ between architectures.

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
      index=(layer, *tensor.index),
    )
    for tensor in _layer_tensors(config, layout)
    for layer in range(c.num_layers)
  ]
  return unstacked + sorted(stacked, key=lambda tensor: (tensor.path, tensor.index))


def stacked_axes(group: Iterable[Tensor]) -> tuple[int, ...]:
  """Returns the lengths of the axes that the tensors of one parameter are stacked on."""
  return tuple(max(axis) + 1 for axis in zip(*(t.index for t in group), strict=True))
