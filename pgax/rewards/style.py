"""Rewards the style of a completion: its length and its repetitions."""

import dataclasses
from collections import Counter
from typing import Literal

from pgax.errors import check_at_least, check_one_of
from pgax.types import NO_METADATA, Metadata


@dataclasses.dataclass(frozen=True)
class LengthTarget:
  """Rewards a length near a target: `max(0, 1 - |length - target| / width)`.

  Attributes:
    target: target length, in `unit`.
    width: distance from the target at which the reward reaches 0, in `unit`.
    unit: `characters`, or `words` separated by white space. For lengths in tokens, use the
      reward shaping of the algorithm.
  """

  target: int
  width: int
  unit: Literal["characters", "words"] = "words"

  def __post_init__(self):
    check_at_least(self, 0, "target")
    check_at_least(self, 1, "width")
    check_one_of(self, ("characters", "words"), "unit")

  def __call__(
    self, prompt: str, completion: str, ground_truth: str, metadata: Metadata = NO_METADATA
  ) -> dict[str, float]:
    """Scores a completion.

    Returns:
      `reward`, in [0, 1]; and `length`, in `unit`.
    """
    del prompt, ground_truth, metadata
    length = len(completion if self.unit == "characters" else completion.split())
    distance = abs(length - self.target) / self.width
    return {"reward": max(0.0, 1.0 - distance), "length": float(length)}


@dataclasses.dataclass(frozen=True)
class RepetitionPenalty:
  """Penalizes repeated n-grams: `-penalty * (1 - distinct n-grams / n-grams)`.

  Source: Demystifying Long Chain-of-Thought, arXiv 2502.03373, where the penalty is per
  token.

  Attributes:
    size: number of words in an n-gram; words are compared in lower case.
    penalty: upper bound of the penalty, approached by a completion of nothing but
      repetitions.
  """

  size: int = 3
  penalty: float = 1.0

  def __post_init__(self):
    check_at_least(self, 1, "size")
    check_at_least(self, 0, "penalty")

  def __call__(
    self, prompt: str, completion: str, ground_truth: str, metadata: Metadata = NO_METADATA
  ) -> dict[str, float]:
    """Scores a completion.

    A completion without an n-gram has no repetitions.

    Returns:
      `reward`, in [-penalty, 0]; and `repeated`, the fraction of repeated n-grams.
    """
    del prompt, ground_truth, metadata
    words = completion.lower().split()
    starts = range(len(words) - self.size + 1)
    counts = Counter(tuple(words[i : i + self.size]) for i in starts)
    repeated = 1 - len(counts) / counts.total() if counts else 0.0
    return {"reward": -self.penalty * repeated, "repeated": repeated}
