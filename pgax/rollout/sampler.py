"""The sampler of a run: tokenizer, devices and settings around `pgax.sampling`."""

import dataclasses
import functools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from transformers import PreTrainedTokenizerFast

from pgax.data.prompts import PromptBatch
from pgax.data.tokenizer import token_bytes
from pgax.distributed.partitioning import (
  batch_sharding,
  batch_shards,
  decoding_layout,
  decoding_shardings,
)
from pgax.distributed.placement import put
from pgax.errors import UserError
from pgax.models.decoder import Decoder
from pgax.models.parameters import cast_matrices
from pgax.rollout.config import SamplingConfig
from pgax.sampling import Options, logit_bias, sample, stop_table
from pgax.types import Array, PyTree, Rollout


@dataclasses.dataclass(frozen=True)
class Sampler:
  """Everything about sampling except parameters, prompts and random key.

  Attributes:
    model: decoder of the policy.
    tokenizer: tokenizer of the model.
    mesh: mesh of devices, which prompts are sharded over.
    options: sampling options; their temperature is ignored.
    max_completion_tokens: maximum number of tokens in a completion, EOS included.
    slots: number of completions decoded at a time; 0 for all.
    record_experts: whether rollouts have the experts of each token.
  """

  model: Decoder
  tokenizer: PreTrainedTokenizerFast
  mesh: Mesh
  options: Options
  max_completion_tokens: int
  slots: int = 0
  record_experts: bool = False

  def place(self, params: PyTree) -> PyTree:
    """Moves parameters to where decoding reads them, once for all tokens of a rollout.

    On several devices that is another layout than a training step's, in the dtype that the
    model computes in. On one device, and if they have that layout, nothing is done.

    Args:
      params: parameters of the decoder.

    Returns:
      The parameters.
    """
    if self.mesh.size == 1:
      return params
    return _placement(self.model, self.mesh)(params)

  def __call__(
    self,
    params: PyTree,
    prompts: PromptBatch,
    key: Array,
    temperature: float,
    group: int,
  ) -> Rollout:
    """Samples `group` completions of every prompt.

    Args:
      params: parameters of the decoder; for several calls, from `place`.
      prompts: batch of `N` prompts.
      key: random key, or `[N]` of them; see `pgax.sampling.sample`.
      temperature: sampling temperature; 0 decodes greedily.
      group: number of completions per prompt.

    Returns:
      A `Rollout`, sharded over prompts.
    """
    sharding = batch_sharding(self.mesh)
    tokens, mask = put((prompts.tokens, prompts.mask), sharding)
    fits = self.slots < len(prompts.tokens) * group
    rollout = sample(
      self.model,
      self.place(params),
      tokens,
      mask,
      key,
      self.options.replace(temperature=temperature),
      group=group,
      max_tokens=self.max_completion_tokens,
      slots=self.slots if fits else 0,
      lanes=batch_shards(self.mesh),
      record_experts=self.record_experts,
    )
    # The compiler may choose another layout than the one that the train step expects.
    return jax.device_put(rollout, sharding)


@functools.lru_cache(maxsize=4)
def _placement(model: Decoder, mesh: Mesh) -> Callable[[PyTree], PyTree]:
  shardings = decoding_shardings(model, mesh)
  cast = functools.partial(cast_matrices, dtype=model.config.compute_dtype)
  reshard = jax.jit(cast, out_shardings=shardings)

  def place(params: PyTree) -> PyTree:
    pairs = zip(jax.tree.leaves(params), jax.tree.leaves(shardings), strict=True)
    same = all(x.sharding.is_equivalent_to(goal, x.ndim) for x, goal in pairs)
    return params if same else reshard(params)

  return place


def check_slots(slots: int, mesh: Mesh) -> None:
  """Checks that devices can share the slots.

  Args:
    slots: number of completions decoded at a time; 0 for all.
    mesh: mesh of devices.

  Raises:
    UserError: if they don't divide.
  """
  if slots % batch_shards(mesh):
    raise UserError(
      f"sampling.slots is {slots}; it must be a multiple of the {batch_shards(mesh)} "
      "devices that prompts are sharded over"
    )


def make_sampler(
  config: SamplingConfig,
  model: Decoder,
  tokenizer: PreTrainedTokenizerFast,
  mesh: Mesh,
  eos_ids: Sequence[int] = (),
  record_experts: bool = False,
) -> Sampler:
  """Builds a sampler from its settings.

  Args:
    config: sampling settings.
    model: decoder of the policy.
    tokenizer: tokenizer of the model.
    mesh: mesh of devices.
    eos_ids: ids of tokens that end a completion; empty for the tokenizer's EOS alone.
    record_experts: whether rollouts have the experts of each token.

  Returns:
    A `Sampler`.

  Raises:
    UserError: if the settings don't fit the vocabulary or the mesh.
  """
  check_slots(config.slots, mesh)
  vocab_size = model.config.vocab_size
  try:
    bias = logit_bias(vocab_size, dict(config.logit_bias), config.banned_tokens)
  except ValueError as error:
    raise UserError(f"sampling.logit_bias and sampling.banned_tokens: {error}") from None
  stop = None
  if config.stop_strings:
    table = stop_table(config.stop_strings, token_bytes(tokenizer, vocab_size))
    stop = jnp.asarray(table)
  options = Options(
    eos_ids=np.asarray(eos_ids or [tokenizer.eos_token_id], np.int32),
    top_k=config.top_k,
    top_p=config.top_p,
    min_p=config.min_p,
    min_tokens=config.min_tokens,
    logit_bias=bias,
    stop=stop,
  )
  return Sampler(
    dataclasses.replace(model, layout=decoding_layout(mesh)),
    tokenizer,
    mesh,
    options,
    config.max_completion_tokens,
    config.slots,
    record_experts,
  )
