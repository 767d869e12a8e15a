"""Sampling options: numbers and arrays that can change without a new trace."""

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from pgax.types import Array

# Beyond these, a softmax of float32 logits is one-hot or uniform up to rounding.
MIN_TEMPERATURE, MAX_TEMPERATURE = 1e-3, 1e3


@flax.struct.dataclass
class Options:
  """Sampling options; changing a number does not retrace.

  The options apply to the logits in this order: `logit_bias`, `min_tokens`, `temperature`,
  `top_k`, `top_p` of the remaining tokens, `min_p`. The policy is
  `softmax(logits / temperature)`, regardless of the other options.

  Attributes:
    eos_ids: `[E]` int32, ids of tokens that end a completion.
    temperature: temperature of the policy, at least 0; 0 decodes greedily.
    top_k: number of most likely tokens to sample from; 0 for all.
    top_p: samples from the most likely tokens that together reach this probability (nucleus
      sampling, arXiv 1904.09751), in (0, 1]; 1 for all.
    min_p: samples from tokens at least this fraction as likely as the most likely one
      (arXiv 2407.01082), in [0, 1]; 0 for all.
    min_tokens: number of tokens to sample before EOS or a stop string may end the
      completion.
    logit_bias: `[V]` float32 added to the logits, `-inf` for banned tokens; None for no
      bias.
    stop: `[states, V]` int32, table from `stop_table`; None without stop strings.
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
  """Converts the options to arrays of fixed dtypes, so that number types don't retrace.

  Example:
    >>> canonical(Options(eos_ids=[2], top_k=3)).top_k
    array(3, dtype=int32)
  """
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
  # NumPy arrays stay on the host until the compiled call transfers them.
  return value.astype(dtype) if isinstance(value, jax.Array) else np.asarray(value, dtype)


def logit_bias(
  vocab_size: int, bias: dict[int, float], banned: tuple[int, ...]
) -> Array | None:
  """Builds `Options.logit_bias`.

  Args:
    vocab_size: size of the vocabulary, `V`.
    bias: numbers to add to logits, by token id.
    banned: ids of tokens that are never sampled.

  Returns:
    `[V]` float32; None if no token has a bias.

  Raises:
    ValueError: if an id is outside the vocabulary, a bias is nan, or all tokens are banned.

  Example:
    >>> print(logit_bias(4, {2: 1.5}, banned=(0,)))
    [-inf  0.   1.5  0. ]
  """
  if not bias and not banned:
    return None
  for token in (*bias, *banned):
    if not 0 <= token < vocab_size:
      raise ValueError(f"token id {token} is not in the vocabulary of {vocab_size}")
  array = np.zeros(vocab_size, np.float32)
  array[list(bias)] = list(bias.values())
  array[list(banned)] = -np.inf
  if np.isnan(array).any():
    raise ValueError(f"the bias of token {int(np.isnan(array).argmax())} is nan")
  if np.isneginf(array).all():
    raise ValueError(f"all {vocab_size} tokens are banned; at least one must remain")
  return jnp.asarray(array)
