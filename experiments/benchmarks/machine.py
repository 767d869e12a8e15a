"""The limits of the machine, and the least share of them that the work needs."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from experiments.benchmarks.shape import Shape
from experiments.benchmarks.worker import process_memory

_CPU_SIDE, _CPU_BYTES = 2048, 2**27
_GPU_SIDE, _GPU_BYTES = 8192, 2**30


def _sizes() -> tuple[int, int]:
  """Returns the side of the matrix, and the bytes of an array larger than any cache."""
  on_cpu = jax.default_backend() == "cpu"
  return (_CPU_SIDE, _CPU_BYTES) if on_cpu else (_GPU_SIDE, _GPU_BYTES)


def limit_calls(dtype: str) -> dict[str, Callable[[], None]]:
  """Makes functions that measure the machine, each by jitted code with one operation.

  Args:
    dtype: dtype of the matrix product.

  Returns:
    `matmul`, a square matrix product, and `copy`, which adds 1 to a float32 array in place
    (the first touch of new memory is far slower).
  """
  side, size = _sizes()
  square, line = jnp.ones((side, side), dtype), [jnp.ones(size // 4)]
  product = jax.jit(lambda x: x @ x)
  add = jax.jit(lambda x: x + 1, donate_argnums=0)

  def copy() -> None:
    line[0] = jax.block_until_ready(add(line[0]))

  def matmul() -> None:
    jax.block_until_ready(product(square))

  return {"matmul": matmul, "copy": copy}


def limit_work() -> dict[str, float]:
  """Counts the operations of `matmul`, and the bytes that `copy` reads and writes."""
  side, size = _sizes()
  return {"matmul": 2.0 * side**3, "copy": 2.0 * size}


def peak_bytes() -> tuple[int, str]:
  """Returns the peak memory so far, and which memory that is."""
  statistics = jax.devices()[0].memory_stats() or {}
  if "peak_bytes_in_use" in statistics:
    return statistics["peak_bytes_in_use"], "memory of the device"
  return process_memory()


def token_flops(shape: Shape, context: float, logits: bool = True) -> float:
  """Counts the operations of the forward pass of a token.

  Args:
    shape: sizes of the model.
    context: number of tokens that it attends to, itself included.
    logits: whether logits are computed.

  Returns:
    Operations of matrix products; an addition and a multiplication count as two.
  """
  s = shape
  heads = 2 * s.heads + 2 * s.kv_heads
  layer = s.embed * s.head_dim * heads + 3 * s.embed * s.hidden
  attention = 2 * context * s.heads * s.head_dim
  return 2 * (s.layers * (layer + attention) + logits * s.embed * s.vocab)


def update_flops(shape: Shape) -> float:
  """Counts the operations that an update needs at least.

  They are a forward pass with its gradient, which costs as much as three, and one of the
  reference. Each prompt is read once. What an implementation computes again does not count.
  """
  s = shape
  prompts = s.prompts * s.prompt_len * token_flops(s, s.prompt_len / 2, logits=False)
  forward = prompts + s.new_tokens * token_flops(s, s.prompt_len + s.gen_len / 2)
  return forward * (3 + (s.beta > 0))


def step_bytes(shape: Shape, params: int) -> float:
  """Counts the bytes that a step of decoding reads at least, on average.

  They are the parameters, the keys and values of each prompt once, and those of all
  completions up to the token, all in the dtype of the shape.

  Args:
    shape: sizes of model and batch.
    params: number of parameters.
  """
  s = shape
  itemsize = jnp.dtype(s.dtype).itemsize
  a_token = 2 * s.layers * s.kv_heads * s.head_dim
  tokens = s.prompts * s.prompt_len + s.rows * s.gen_len / 2
  return itemsize * (params + a_token * tokens)
