"""Rotary position embeddings (RoPE), and the scaling of their wavelengths."""

import dataclasses
import math

import jax.numpy as jnp
import numpy as np

from pgax.errors import check_each
from pgax.types import Array

KINDS = ("none", "linear", "llama3", "yarn", "longrope")


@dataclasses.dataclass(frozen=True)
class RopeScaling:
  """Scaling of RoPE wavelengths, which extends a model to longer texts.

  Fields that a kind does not mention are ignored. A feature "rotates n times" if it makes
  `n` full rotations within `trained_length`.

  Attributes:
    kind: `none`; `linear`, which scales all wavelengths (arXiv 2306.15595); `llama3`, which
      scales long wavelengths, with a smooth transition (arXiv 2407.21783); `yarn`, which
      scales by the number of rotations (arXiv 2309.00071); or `longrope`, which scales each
      wavelength by its own factor (arXiv 2402.13753), here those for texts up to the
      trained length.
    factor: factor of the longest wavelengths.
    trained_length: context length of pretraining, in tokens; for `llama3`, `yarn` and
      `longrope`.
    low_freq_factor: `llama3` scales features that rotate fewer times by the full factor.
    high_freq_factor: `llama3` does not scale features that rotate more times.
    beta_fast: `yarn` does not scale features that rotate more times.
    beta_slow: `yarn` scales features that rotate fewer times by the full factor.
    attention_factor: factor of queries and keys; 0 uses `0.1 ln(factor) + 1` in `yarn`, and
      `sqrt(1 + ln(factor) / ln(trained_length))` in `longrope`.
    truncate: whether `yarn` rounds the ends of its transition to whole features.
    factors: factor of each wavelength in `longrope`.
  """

  kind: str = "none"
  factor: float = 1.0
  trained_length: int = 0
  low_freq_factor: float = 1.0
  high_freq_factor: float = 4.0
  beta_fast: float = 32.0
  beta_slow: float = 1.0
  attention_factor: float = 0.0
  truncate: bool = True
  factors: tuple[float, ...] = ()

  def __post_init__(self):
    object.__setattr__(self, "factors", tuple(self.factors))  # a list has no hash
    where = "model.rope_scaling."
    check_each(self, ["kind"], lambda x: x in KINDS, f"one of {', '.join(KINDS)}", where)
    check_each(self, ["factor"], lambda x: x > 0, "positive", where)
    if self.kind in ("llama3", "yarn", "longrope") and self.trained_length < 1:
      raise ValueError(
        f"model.rope_scaling.trained_length is {self.trained_length}; it must be at least "
        f"1 for {self.kind}"
      )
    if self.kind == "llama3" and not 0 < self.low_freq_factor < self.high_freq_factor:
      raise ValueError(
        f"model.rope_scaling.low_freq_factor is {self.low_freq_factor}; it must be "
        f"positive and below high_freq_factor, which is {self.high_freq_factor}"
      )
    if self.kind == "yarn" and not 0 < self.beta_slow < self.beta_fast:
      raise ValueError(
        f"model.rope_scaling.beta_slow is {self.beta_slow}; it must be positive and below "
        f"beta_fast, which is {self.beta_fast}"
      )
    if (self.kind == "longrope") != bool(self.factors):
      raise ValueError(
        f"model.rope_scaling.factors is {self.factors} and kind is {self.kind!r}; "
        "longrope, and no other kind, must have factors"
      )
    if not all(factor > 0 for factor in self.factors):
      raise ValueError(
        f"model.rope_scaling.factors is {self.factors}; all of them must be positive"
      )
    if self.attention_factor < 0:
      raise ValueError(
        f"model.rope_scaling.attention_factor is {self.attention_factor}; it must not be "
        "negative"
      )


def frequencies(
  theta: float, rope_dim: int, scaling: RopeScaling
) -> tuple[np.ndarray, float]:
  """Computes angular frequencies of feature pairs, and the factor of cosine and sine.

  Unscaled, the frequencies are `theta**(-2 i / D)`. They are computed in float32, as in the
  training of the models: at positions of 10**5 the last bit of a frequency shows in the
  angle.

  Args:
    theta: base of the wavelengths.
    rope_dim: number of rotated features of a head, `D`.
    scaling: scaling of the wavelengths.

  Returns:
    `[D / 2]` float32, in radians per token, and a float.
  """
  exponent = np.arange(0, rope_dim, 2, dtype=np.float32) / np.float32(rope_dim)
  plain = np.float32(1) / np.float32(theta) ** exponent
  slow = plain / np.float32(scaling.factor)
  if scaling.kind == "none":
    return plain, 1.0
  if scaling.kind == "linear":
    return slow, 1.0
  if scaling.kind == "longrope":
    each = plain / np.asarray(scaling.factors, np.float32)
    return each, scaling.attention_factor or _longrope_factor(scaling)
  if scaling.kind == "llama3":
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    rotations = scaling.trained_length * plain / (2 * math.pi)
    keep = np.clip((rotations - low) / (high - low), 0, 1)
    return ((1 - keep) * slow + keep * plain).astype(np.float32), 1.0

  def feature(rotations: float) -> float:
    """Index of the pair that rotates this many times within the trained length."""
    length = scaling.trained_length / (rotations * 2 * math.pi)
    return rope_dim * math.log(length) / (2 * math.log(theta))

  first, last = feature(scaling.beta_fast), feature(scaling.beta_slow)
  if scaling.truncate:
    first, last = math.floor(first), math.ceil(last)
  first, last = max(first, 0), min(last, rope_dim - 1)
  # A transition without width is a step; the width only keeps the division defined.
  width = last - first if last != first else 0.001
  stretch = np.clip((np.arange(rope_dim // 2, dtype=np.float32) - first) / width, 0, 1)
  mixed = (slow * stretch + plain * (1 - stretch)).astype(np.float32)
  default_factor = 0.1 * math.log(scaling.factor) + 1.0 if scaling.factor > 1 else 1.0
  return mixed, scaling.attention_factor or default_factor


def _longrope_factor(scaling: RopeScaling) -> float:
  """The factor of cosine and sine that keeps the entropy of attention in longer texts."""
  if scaling.factor <= 1:
    return 1.0
  return math.sqrt(1 + math.log(scaling.factor) / math.log(scaling.trained_length))


def angles(positions: Array, frequency: Array, factor: float) -> Array:
  """Computes the cosines and sines that rotate features.

  Args:
    positions: `[...]` int.
    frequency: `[D / 2]`, radians per token.
    factor: factor of cosines and sines.

  Returns:
    `[2, ..., D / 2]` float32.
  """
  angle = positions[..., None].astype(jnp.float32) * frequency
  return jnp.stack([jnp.cos(angle), jnp.sin(angle)]) * jnp.float32(factor)


def rotate(x: Array, rope: Array) -> Array:
  """RoPE: rotates pairs of features by angles that depend on the position.

  The first `R` features are rotated, and others stay. Feature `i` of their first half and
  feature `i` of their second half are rotated together, by `position * frequency[i]`.
  Source: RoFormer, arXiv 2104.09864.

  Args:
    x: `[..., H, D]` queries or keys.
    rope: `[2, ..., R / 2]` from `angles`, without an axis of heads.

  Returns:
    `[..., H, D]`, the dtype of `x`.
  """
  cos, sin = rope[..., None, :]
  pairs = cos.shape[-1]
  first, second, unrotated = jnp.split(x.astype(jnp.float32), [pairs, 2 * pairs], axis=-1)
  rotated = [first * cos - second * sin, second * cos + first * sin, unrotated]
  return jnp.concatenate(rotated, axis=-1).astype(x.dtype)
