"""Rewards of how a completion is written: its length, and what it repeats."""

import dataclasses
import math
from collections import Counter
from collections.abc import Mapping
from typing import Any, Literal

from pgax.types import NO_METADATA


@dataclasses.dataclass(frozen=True)
class LengthTarget:
  """Rewards a length near a target: `max(0, 1 - |length - target| / width)`.

  Attributes:
    target: the length wanted, in `unit`.
    width: how far away the reward has fallen from 1 to 0, in `unit`.
    unit: `characters`, or `words` as white space parts them. Lengths in tokens are the
      algorithm's to shape, which sees tokens.
  """

  target: int
  width: int
  unit: Literal["characters", "words"] = "words"

  def __post_init__(self):
    if self.target < 0:
      raise ValueError(f"target is {self.target}; it must be at least 0")
    if self.width < 1:
      raise ValueError(f"width is {self.width}; it must be at least 1")
    if self.unit not in ("characters", "words"):
      raise ValueError(f"unit is {self.unit!r}; allowed are 'characters' and 'words'")

  def __call__(
    self,
    prompt: str,
    completion: str,
    ground_truth: str,
    metadata: Mapping[str, Any] = NO_METADATA,
  ) -> dict[str, float]:
    """Scores a completion; `length` is told too, in `unit`."""
    del prompt, ground_truth, metadata
    length = len(completion if self.unit == "characters" else completion.split())
    away = abs(length - self.target) / self.width
    return {"reward": max(0.0, 1.0 - away), "length": float(length)}


@dataclasses.dataclass(frozen=True)
class RepetitionPenalty:
  """Punishes repeated n-grams: `-penalty * (1 - distinct n-grams / n-grams)`.

  Source: Demystifying Long Chain-of-Thought, arXiv 2502.03373, there for each token.

  Attributes:
    size: number of words of an n-gram, lower case.
    penalty: what a completion that does nothing but repeat comes near to losing.
  """

  size: int = 3
  penalty: float = 1.0

  def __post_init__(self):
    if self.size < 1:
      raise ValueError(f"size is {self.size}; it must be at least 1")
    if not 0 <= self.penalty < math.inf:
      raise ValueError(f"penalty is {self.penalty}; it must be at least 0, and finite")

  def __call__(
    self,
    prompt: str,
    completion: str,
    ground_truth: str,
    metadata: Mapping[str, Any] = NO_METADATA,
  ) -> dict[str, float]:
    """Scores a completion; one shorter than an n-gram repeats nothing."""
    del prompt, ground_truth, metadata
    words = completion.lower().split()
    starts = range(len(words) - self.size + 1)
    counts = Counter(tuple(words[i : i + self.size]) for i in starts)
    repeated = 1 - len(counts) / counts.total() if counts else 0.0
    return {"reward": -self.penalty * repeated, "repeated": repeated}
