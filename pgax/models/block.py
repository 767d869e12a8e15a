"""The blocks of a decoder, stacked in a scan or one after the other."""

from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from pgax.models.attend import Part
from pgax.models.attention import Attention
from pgax.models.cache import NEVER, take_rows
from pgax.models.config import DecoderConfig
from pgax.models.experts import Experts, Routing
from pgax.models.layers import ADAPTERS, GatedMLP, RMSNorm
from pgax.models.layout import BATCH, Layout, constrain
from pgax.types import Array

LAYERS = "layers"  # the logical axis that parameters of all layers are stacked on


class LayerInputs(NamedTuple):
  """The inputs that are the same in all layers.

  Attributes:
    positions: `[N, G, L]` int32, positions of the new tokens.
    rope: `[kinds, 2, N, G, L, R / 2]`, cosines and sines of the positions, for each kind of
      layer; see `rope_kinds`.
    memory_positions: positions `[N, G, S]` in each part of the memory, or `[N, 1, S]` if
      the group shares it.
    memory_rows: for each part of the memory the rows `[N, G]` of it that completions attend
      to, or None if there is nothing to select.
    segments: `[N, G, L]` int32, number of each token's text in its row; None if every row
      is one text.
    index: int32 scalar, slot of the last part of the memory that new tokens are written to
      before they are attended to; None attends to them beside the memory.
  """

  positions: Array
  rope: Array
  memory_positions: tuple[Array, ...]
  memory_rows: tuple[Array | None, ...]
  segments: Array | None = None
  index: Array | None = None


def rope_kinds(config: DecoderConfig) -> tuple[int, ...]:
  """Returns the kind of RoPE of each layer: global, in sliding layers, or none at all."""
  c, local = config, int(config.local_rope_theta > 0)
  rotated = c.rope_layers or (True,) * c.num_layers
  layers = zip(c.is_sliding, rotated, strict=True)
  return tuple(local * sliding if rope else 1 + local for sliding, rope in layers)


class LayerKind(NamedTuple):
  """Properties that differ between layers, stacked on the axis of layers.

  Attributes:
    sliding: bool, whether the layer attends to the sliding window only.
    rope: int32, index of the layer's cosines and sines in `LayerInputs.rope`.
  """

  sliding: Array
  rope: Array


class LayerOutputs(NamedTuple):
  """The outputs of a layer besides the residual stream; a scan stacks them.

  Attributes:
    keys: `[N, G, K, L, D]`, keys of the new tokens.
    values: `[N, G, K, L, D]`.
    routing: choices of the layer's router; None without experts.
  """

  keys: Array
  values: Array
  routing: Routing | None


class Block(nn.Module):
  """Attention and feed-forward layer, each normalized and added to the residual stream.

  The arguments are in the order of a scan over layers: the carry `x`, then what is the same
  in all layers, then what each layer has of its own.
  """

  config: DecoderConfig
  layout: Layout | None = None

  def setup(self):
    c = self.config
    self.attention = Attention(c, self.layout)
    if c.num_experts:
      self.experts = Experts(c, self.layout)
    else:
      self.mlp = GatedMLP(c, self.layout)
    if c.norm_placement != "post":
      self.attention_norm, self.mlp_norm = RMSNorm(c), RMSNorm(c)
    if c.norm_placement != "pre":
      self.attention_post_norm, self.mlp_post_norm = RMSNorm(c), RMSNorm(c)

  def __call__(
    self,
    x: Array,
    inputs: LayerInputs,
    kind: LayerKind,
    memory: tuple[tuple[Array, Array], ...],
    experts: Array | None = None,
  ) -> tuple[Array, LayerOutputs]:
    """Applies one layer.

    Args:
      x: `[N, G, L, E]`.
      inputs: inputs that are the same in all layers.
      kind: kind of the layer.
      memory: keys and values of each part of the memory, in this layer.
      experts: `[N, G, L, k]`, experts that compute the tokens; None lets the router choose.

    Returns:
      The new `x`, and the other outputs of the layer.
    """
    c = self.config
    # Rows are taken layer by layer: all layers at once would copy the prompts.
    memory = tuple(
      Part(take_rows(keys, rows), take_rows(values, rows), positions)
      for (keys, values), positions, rows in zip(
        memory, inputs.memory_positions, inputs.memory_rows, strict=True
      )
    )
    rope = inputs.rope[0 if len(inputs.rope) == 1 else kind.rope]
    before = self.attention_norm(x) if c.norm_placement != "post" else x
    out, keys, values = self.attention(
      before, inputs.positions, rope, kind.sliding, memory, inputs.segments, inputs.index
    )
    out = self.attention_post_norm(out) if c.norm_placement != "pre" else out
    x = constrain(self.layout, x + out * c.residual_scale, BATCH)
    before = self.mlp_norm(x) if c.norm_placement != "post" else x
    routing = None
    if c.num_experts:
      out, routing = self.experts(before, inputs.positions < NEVER, experts)
    else:
      out = self.mlp(before)
    out = self.mlp_post_norm(out) if c.norm_placement != "pre" else out
    x = constrain(self.layout, x + out * c.residual_scale, BATCH)
    return x, LayerOutputs(keys, values, routing)


def scanned(config: DecoderConfig) -> type[nn.Module]:
  """Builds all blocks as one: compiled once, parameters stacked on a leading axis."""
  block = nn.remat(Block, prevent_cse=False) if config.remat else Block
  return nn.scan(
    block,
    variable_axes={"params": 0, ADAPTERS: 0},
    split_rngs={"params": True},
    in_axes=(nn.broadcast, 0, 0, 0),
    out_axes=0,
    length=config.num_layers,
    metadata_params={nn.PARTITION_NAME: LAYERS},
  )


class Unrolled(nn.Module):
  """Applies all blocks in order, as `scanned` does, each with separate arrays.

  A scan over stacked arrays copies the slices of every layer before it uses them: all
  parameters and the whole cache, for every token that is decoded.
  """

  config: DecoderConfig
  layout: Layout | None = None

  def setup(self):
    c = self.config
    self.layers = [Block(c, self.layout) for _ in range(c.num_layers)]

  def __call__(
    self,
    x: Array,
    inputs: LayerInputs,
    kinds: LayerKind,
    memory: tuple[tuple[tuple[Array, ...], tuple[Array, ...]], ...],
    experts: Array | None = None,
  ) -> tuple[Array, LayerOutputs]:
    """Applies all layers to `x`, and writes to the last part of the memory.

    Args:
      x: `[N, G, 1, E]`.
      inputs: inputs that are the same in all layers, with an index.
      kinds: kinds of all layers.
      memory: keys and values of each part of the memory, tuples with an array of each
        layer; the last part's are `narrow`.
      experts: `[layers, N, G, 1, k]`, or None.

    Returns:
      The new `x`, and outputs whose keys and values are tuples, those of the last part.
    """
    outputs = []
    for i, layer in enumerate(self.layers):
      kind = LayerKind(*(x[i] for x in kinds))
      pairs = tuple((keys[i], values[i]) for keys, values in memory)
      x, output = layer(x, inputs, kind, pairs, None if experts is None else experts[i])
      outputs.append(output)
    keys, values, routing = zip(*outputs, strict=True)
    return x, LayerOutputs(keys, values, jax.tree.map(lambda *x: jnp.stack(x), *routing))
