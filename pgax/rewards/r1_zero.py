"""The format of R1-Zero: thoughts, then an answer, each in its tags."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from pgax.rewards.answers import boxed
from pgax.rewards.symbolic import equivalent, require_math_verify
from pgax.types import NO_METADATA


@dataclasses.dataclass(frozen=True)
class R1Zero:
  r"""Scores `... </think> <answer> ... </answer>`: the format, and the answer in it.

  The prompt ends in `<think>`, so that the completion begins with the thoughts. A right
  answer without the format is worth nothing. Source: DeepSeek-R1, arXiv 2501.12948, with
  the rules and the names of Stanford's CS336 (2025), assignment 5.

  Attributes:
    symbolic: whether to compare by math-verify what is not the same text or number; needs
      the extra `math`. It may compute for hours on what a model writes, say
      `10^{10^{10}}`; only the deadline of a pool (`scoring.workers`) ends that.
  """

  symbolic: bool = True

  def __post_init__(self):
    require_math_verify(self.symbolic)

  def __call__(
    self,
    prompt: str,
    completion: str,
    ground_truth: str,
    metadata: Mapping[str, Any] = NO_METADATA,
  ) -> dict[str, float]:
    r"""Scores a completion.

    Args:
      prompt: not looked at.
      completion: the text to score.
      ground_truth: the right answer. An answer in `\boxed{}` is taken out of it.
      metadata: not looked at.

    Returns:
      `format_reward`, 1.0 if the tags stand where they should; `answer_reward` and
      `accuracy`, 1.0 if moreover the answer is right; and `reward`, which is the same.
    """
    del prompt, metadata
    formatted = "</think> <answer>" in completion and "</answer>" in completion
    right = False
    if formatted:
      answer = completion.rpartition("<answer>")[2].replace("</answer>", "")
      # A box that was never closed holds no answer.
      box = "\\boxed" in answer or "\\fbox" in answer
      answer = boxed(answer) if box else answer
      if answer is not None and answer.strip():
        right = equivalent(ground_truth, answer, self.symbolic)
    return {
      "reward": float(right),
      "format_reward": float(formatted),
      "answer_reward": float(right),
      "accuracy": float(right),
    }
