"""What a completion is drawn by: numbers and arrays, none of them part of the trace."""

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from pgax.types import Array


@flax.struct.dataclass
class Options:
  """How completions are drawn; changing a number traces nothing anew.

  What is drawn from is made of the logits in this order: bias, no end before its time,
  temperature, `top_k`, `top_p` of what is left, `min_p`. The policy is
  `softmax(logits / temperature)` whatever the other options are.

  Attributes:
    eos_ids: `[E]` int32, tokens that end a completion.
    temperature: of the policy, at least 0; at 0 the likeliest token is taken.
    top_k: number of likeliest tokens to draw from; 0 for all.
    top_p: draws from the likeliest tokens that together reach this probability (nucleus
      sampling, arXiv 1904.09751), in (0, 1]; 1 for all.
    min_p: draws from tokens at least this fraction as likely as the likeliest (arXiv
      2407.01082), in [0, 1]; 0 for all.
    min_tokens: no completion ends before it has so many tokens, which the one that ends it
      may follow.
    logit_bias: `[V]` float32 added to the logits, `-inf` for forbidden tokens; or None.
    stop: `[states, V]` int32 from `stop_table`; None without stop sequences.
  """

  eos_ids: Array
  temperature: Array | float = 1.0
  top_k: Array | int = 0
  top_p: Array | float = 1.0
  min_p: Array | float = 0.0
  min_tokens: Array | int = 0
  logit_bias: Array | None = None
  stop: Array | None = None


def canonical(options: Options) -> Options:
  """The options as arrays of fixed types: a float and a NumPy scalar trace alike."""
  numbers = {
    "temperature": np.float32,
    "top_k": np.int32,
    "top_p": np.float32,
    "min_p": np.float32,
    "min_tokens": np.int32,
    "eos_ids": np.int32,
  }
  return options.replace(
    **{name: _array(vars(options)[name], dtype) for name, dtype in numbers.items()}
  )


def _array(value: Array | float, dtype: type) -> Array:
  # NumPy stays on the host, where the compiled call takes it from.
  return value.astype(dtype) if isinstance(value, jax.Array) else np.asarray(value, dtype)


def logit_bias(
  vocab_size: int, bias: dict[int, float], forbidden: tuple[int, ...]
) -> Array | None:
  """`Options.logit_bias` of the tokens that have one.

  Args:
    vocab_size: `V`.
    bias: added to a token's logit, by its id.
    forbidden: ids never to be drawn.

  Returns:
    `[V]` float32; None where no token has a bias.

  Raises:
    ValueError: for an id that is no token's, a bias of nan, or if no token is left.
  """
  if not bias and not forbidden:
    return None
  for token in (*bias, *forbidden):
    if not 0 <= token < vocab_size:
      raise ValueError(f"token id {token} is not in the vocabulary of {vocab_size}")
  array = np.zeros(vocab_size, np.float32)
  array[list(bias)] = list(bias.values())
  array[list(forbidden)] = -np.inf
  if np.isnan(array).any():
    raise ValueError(f"the bias of token {int(np.isnan(array).argmax())} is nan")
  if np.isneginf(array).all():
    raise ValueError(f"all {vocab_size} tokens are forbidden; one must be left")
  return jnp.asarray(array)
