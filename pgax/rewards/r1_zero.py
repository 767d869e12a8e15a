"""Verifies the R1-Zero format: reasoning, then an answer, each in its tags."""

import dataclasses

from pgax.rewards.answers import boxed
from pgax.rewards.symbolic import equivalent, require_math_verify
from pgax.types import NO_METADATA, Metadata


@dataclasses.dataclass(frozen=True)
class R1Zero:
  r"""Scores the format `... </think> <answer> ... </answer>` and the answer in it.

  The prompt ends in `<think>`, so the completion starts with the reasoning. A right answer
  in a wrong format gets no reward. Source: DeepSeek-R1, arXiv 2501.12948, with the rules
  and the names of Stanford's CS336 (2025), assignment 5.

  Attributes:
    symbolic: whether math-verify compares answers that differ as text and as numbers; needs
      the extra `math`. Answers that take too many steps to compare, such as
      `10^{10^{10}}`, are wrong.
  """

  symbolic: bool = True

  def __post_init__(self):
    require_math_verify(self.symbolic)

  def __call__(
    self, prompt: str, completion: str, ground_truth: str, metadata: Metadata = NO_METADATA
  ) -> dict[str, float]:
    r"""Scores a completion.

    `ground_truth` is the right answer. If it is in `\boxed{}`, the box is removed.

    Returns:
      `format_reward`, 1.0 if the completion has the format and 0.0 otherwise; and
      `answer_reward`, `accuracy` and `reward`, 1.0 if the answer in it is right as well and
      0.0 otherwise.
    """
    del prompt, metadata
    formatted = "</think> <answer>" in completion and "</answer>" in completion
    correct = False
    if formatted:
      answer = completion.rpartition("<answer>")[2].replace("</answer>", "")
      # A box that is never closed has no answer.
      box = "\\boxed" in answer or "\\fbox" in answer
      answer = boxed(answer) if box else answer
      if answer is not None and answer.strip():
        correct = equivalent(ground_truth, answer, self.symbolic)
    return {
      "reward": float(correct),
      "format_reward": float(formatted),
      "answer_reward": float(correct),
      "accuracy": float(correct),
    }
