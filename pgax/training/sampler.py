"""The sampler of a run: texts, devices and settings around `pgax.sampling`."""

import dataclasses
from collections.abc import Sequence

import jax
import numpy as np
from jax.sharding import Mesh
from transformers import PreTrainedTokenizerFast

from pgax.data.prompts import PromptBatch
from pgax.data.tokenizer import token_bytes
from pgax.models.decoder import Decoder
from pgax.models.partitioning import batch_sharding, batch_shards
from pgax.sampling import Options, logit_bias, sample, stop_table
from pgax.training.config import SamplingConfig
from pgax.training.errors import UserError
from pgax.types import Array, PyTree, Rollout


@dataclasses.dataclass(frozen=True)
class Sampler:
  """Everything about sampling but the parameters, the prompts and the key.

  Attributes:
    model: the decoder.
    tokenizer: its tokenizer.
    mesh: of the devices; prompts are spread over it.
    options: how to draw, but for the temperature.
    max_tokens: limit of a completion's length, EOS included.
    slots: number of completions decoded at a time; 0 for all.
  """

  model: Decoder
  tokenizer: PreTrainedTokenizerFast
  mesh: Mesh
  options: Options
  max_tokens: int
  slots: int = 0

  def __call__(
    self,
    params: PyTree,
    prompts: PromptBatch,
    key: Array,
    temperature: float,
    group: int,
  ) -> Rollout:
    """Draws `group` completions of every prompt; temperature 0 is greedy.

    As in `pgax.sampling.sample` the key may be one, or `[N]` of them.
    """
    spread = batch_sharding(self.mesh)
    tokens, mask = jax.device_put((prompts.tokens, prompts.mask), spread)
    few = self.slots < len(prompts.tokens) * group
    rollout = sample(
      self.model,
      params,
      tokens,
      mask,
      key,
      self.options.replace(temperature=temperature),
      group=group,
      max_tokens=self.max_tokens,
      slots=self.slots if few else 0,
      lanes=batch_shards(self.mesh),
    )
    # The compiler may have laid it out otherwise; the train step expects it spread.
    return jax.device_put(rollout, spread)


def make_sampler(
  config: SamplingConfig,
  model: Decoder,
  tokenizer: PreTrainedTokenizerFast,
  mesh: Mesh,
  eos_ids: Sequence[int] = (),
) -> Sampler:
  """The sampler that a run is configured to have.

  Args:
    config: how completions are drawn.
    model: the decoder.
    tokenizer: its tokenizer.
    mesh: of the devices.
    eos_ids: tokens that end a completion; empty for the tokenizer's EOS alone.

  Returns:
    A `Sampler`.

  Raises:
    UserError: if the configuration does not fit the vocabulary or the mesh.
  """
  if config.slots % batch_shards(mesh):
    raise UserError(
      f"sampling.slots is {config.slots}; it must be a multiple of the "
      f"{batch_shards(mesh)} devices that prompts are spread over"
    )
  vocab_size = model.config.vocab_size
  try:
    bias = logit_bias(vocab_size, dict(config.logit_bias), config.forbidden)
  except ValueError as error:
    raise UserError(f"sampling.logit_bias and sampling.forbidden: {error}") from None
  stop = None
  if config.stop:
    stop = stop_table(config.stop, token_bytes(tokenizer, vocab_size))
  options = Options(
    eos_ids=np.asarray(eos_ids or [tokenizer.eos_token_id], np.int32),
    top_k=config.top_k,
    top_p=config.top_p,
    min_p=config.min_p,
    min_tokens=config.min_tokens,
    logit_bias=bias,
    stop=None if stop is None else jax.numpy.asarray(stop),
  )
  return Sampler(model, tokenizer, mesh, options, config.max_tokens, config.slots)
