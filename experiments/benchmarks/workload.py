"""The model and the batch of the benchmarks, and the limits of the machine."""

import dataclasses
import os

import jax
import jax.numpy as jnp
import numpy as np

from experiments.benchmarks.timing import measure
from pgax.models import Decoder, DecoderConfig
from pgax.models.parameters import init_params
from pgax.types import Array, PyTree

CONFIG = DecoderConfig(
  vocab_size=4096,
  num_layers=4,
  embed_dim=256,
  num_heads=4,
  num_kv_heads=2,
  head_dim=64,
  mlp_dim=768,
  scale_embeddings=False,  # as in Llama, so that transformers has the same model
)
MODEL = Decoder(CONFIG)
PROMPTS, GROUP, PROMPT_TOKENS, NEW_TOKENS = 8, 8, 64, 128
NO_EOS = np.array([-1], np.int32)  # no completion ends before the limit


def pin(threads: int) -> None:
  """Pins this process to some cores; call it before anything is computed.

  XLA starts one thread per core that it may use.

  Args:
    threads: number of cores.

  Raises:
    ValueError: if the machine has fewer.
  """
  cores = sorted(os.sched_getaffinity(0))
  if len(cores) < threads:
    raise ValueError(f"threads is {threads}; there are {len(cores)} cores")
  os.sched_setaffinity(0, cores[:threads])


def fresh_params() -> PyTree:
  """Initializes the parameters of the model."""
  return jax.jit(lambda key: init_params(MODEL, key))(jax.random.key(0))


def prompts(count: int = PROMPTS) -> tuple[Array, Array]:
  """Makes random prompts `[N, P]` without padding, and their mask."""
  shape = (count, PROMPT_TOKENS)
  tokens = jax.random.randint(jax.random.key(1), shape, 3, CONFIG.vocab_size)
  return tokens, jnp.ones(shape, bool)


@dataclasses.dataclass(frozen=True)
class Machine:
  """Limits of the machine, measured by jitted code with a single operation.

  Attributes:
    flops: operations per second of a square float32 matrix product; an addition and a
      multiplication count as two.
    bandwidth: bytes per second, read and written, of adding 1 to an array far larger than
      any cache.
  """

  flops: float
  bandwidth: float


def measure_machine() -> Machine:
  """Measures the machine by a matrix product and an addition."""
  side, size = 2048, 2**27
  square, line = jnp.ones((side, side)), [jnp.ones(size // 4)]
  product = jax.jit(lambda x: x @ x)
  # In place, because the first touch of new memory is far slower.
  copy = jax.jit(lambda x: x + 1, donate_argnums=0)

  def step() -> Array:
    line[0] = copy(line[0])
    return line[0]

  times = measure({"product": lambda: product(square), "copy": step})
  return Machine(2 * side**3 / times["product"].wall, 2 * size / times["copy"].wall)


def token_flops(context: float, logits: bool = True) -> float:
  """Counts the operations of the forward pass of a token.

  Args:
    context: number of tokens that it attends to, itself included.
    logits: whether logits are computed.

  Returns:
    Operations of matrix products; an addition and a multiplication count as two.
  """
  c = CONFIG
  heads = 2 * c.num_heads + 2 * c.num_kv_heads
  layer = c.embed_dim * c.head_dim * heads + 3 * c.embed_dim * c.mlp_dim
  attention = 2 * context * c.num_heads * c.head_dim
  return 2 * (c.num_layers * (layer + attention) + logits * c.embed_dim * c.vocab_size)
