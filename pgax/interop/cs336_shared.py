"""Functions shared by the 2025 and 2026 editions of CS336's assignment 5."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from transformers import PreTrainedTokenizerBase

from pgax.data.prompts import pad
from pgax.ops import logprobs, masking
from pgax.rewards import R1Zero
from pgax.rewards.answers import boxed
from pgax.rewards.symbolic import equivalent
from pgax.types import Array

GroundTruth = str | float | int | Sequence[str]


def tokenize_prompt_and_output(
  prompt_strs: Sequence[str],
  output_strs: Sequence[str],
  tokenizer: PreTrainedTokenizerBase,
) -> dict[str, np.ndarray]:
  """Tokenizes prompts and outputs, as inputs and labels that are shifted by one.

  Args:
    prompt_strs: `batch` prompts.
    output_strs: `batch` outputs. No tokens are added between or around the texts, except
      those that the tokenizer adds before a prompt.
    tokenizer: tokenizer of the model. Its pad token fills the rows, or its EOS token if it
      has none.

  Returns:
    `input_ids` and `labels` `[batch, longest - 1]` int32, padded on the right, and
    `response_mask` of the same shape, true if the label is a token of the output.

  Raises:
    ValueError: if the numbers of prompts and outputs differ, or are 0.
  """
  if len(prompt_strs) != len(output_strs) or not prompt_strs:
    raise ValueError(
      f"there are {len(prompt_strs)} prompts and {len(output_strs)} outputs; the numbers "
      "must be equal and at least 1"
    )
  prompts = [tokenizer.encode(text) for text in prompt_strs]
  outputs = [tokenizer.encode(text, add_special_tokens=False) for text in output_strs]
  texts = [a + b for a, b in zip(prompts, outputs, strict=True)]
  tokens, real = pad(texts, max(map(len, texts)))
  fillers = (tokenizer.pad_token_id, tokenizer.eos_token_id)
  tokens = np.where(real, tokens, next((x for x in fillers if x is not None), 0))
  starts = np.asarray([len(ids) for ids in prompts])[:, None]
  response = real & (np.arange(tokens.shape[1]) >= starts)
  return {
    "input_ids": tokens[:, :-1],
    "labels": tokens[:, 1:],
    "response_mask": response[:, 1:],
  }


def compute_entropy(logits: Array) -> Array:
  """Computes the entropy of next-token distributions; see `logprobs.entropy`.

  Args:
    logits: `[batch, length, vocabulary]`.

  Returns:
    `[batch, length]`, in nats.
  """
  return logprobs.entropy(logprobs.log_softmax(logits))


def get_response_log_probs(
  model: Callable[[Array], Any],
  input_ids: Array,
  labels: Array,
  return_token_entropy: bool = False,
) -> dict[str, Array]:
  """Computes the log-probability of every label, prompts and padding included.

  Args:
    model: maps `input_ids` to logits `[batch, length, vocabulary]`, or to an object that
      has them as `logits`.
    input_ids: `[batch, length]` int32.
    labels: `[batch, length]` int32, the token after each input token.
    return_token_entropy: whether to compute the entropies as well.

  Returns:
    `log_probs`, and `token_entropy` if it is wanted, both `[batch, length]`, in nats.
  """
  output = model(input_ids)
  log_probs = logprobs.log_softmax(getattr(output, "logits", output))
  scores = {"log_probs": logprobs.token_logp(log_probs, jnp.asarray(labels))}
  if return_token_entropy:
    scores["token_entropy"] = logprobs.entropy(log_probs)
  return scores


def masked_normalize(
  tensor: Array, mask: Array, normalize_constant: float = 1.0, dim: int | None = None
) -> Array:
  """Sums over entries whose mask is 1, and divides; see `masking.masked_sum`.

  Args:
    tensor: `[...]`.
    mask: `[...]`, of the same shape.
    normalize_constant: divisor of the sum.
    dim: axis to reduce; None reduces all axes.

  Returns:
    The normalized sum.
  """
  return masking.masked_sum(tensor, mask, dim) / normalize_constant


def r1_zero_reward_fn(response: str, ground_truth: GroundTruth) -> dict[str, float]:
  """Scores a response to the R1-Zero prompt; see `rewards.R1Zero`.

  Args:
    response: the response, beginning with the reasoning.
    ground_truth: the right answer, or several of which one must be given.

  Returns:
    `format_reward`, `answer_reward` and `reward`, each 0.0 or 1.0.
  """
  scores = [R1Zero()("", response, truth) for truth in _truths(ground_truth)]
  return _three_rewards(
    scores[0]["format_reward"] > 0, any(x["reward"] > 0 for x in scores)
  )


def question_only_reward_fn(response: str, ground_truth: GroundTruth) -> dict[str, float]:
  r"""Scores a response to a question without a format: the answer is in `\boxed{}`.

  Args:
    response: the response.
    ground_truth: the right answer, or several of which one must be given.

  Returns:
    `format_reward`, 1.0 if the response has an answer in a box; `answer_reward` and
    `reward`, 1.0 if it is right.
  """
  answer = boxed(response) if "\\boxed" in response else None
  if answer is None:
    return _three_rewards(False, False)
  truths = [boxed(truth) or truth for truth in _truths(ground_truth)]
  return _three_rewards(
    True, bool(answer.strip()) and any(equivalent(x, answer) for x in truths)
  )


def score_rollouts(
  reward_fn: Callable[[str, str], Mapping[str, float]],
  rollout_responses: Sequence[str],
  repeated_ground_truths: Sequence[str],
) -> tuple[Array, dict[str, float]]:
  """Scores responses.

  Args:
    reward_fn: maps a response and a ground truth to named scores, `reward` among them.
    rollout_responses: `batch` responses.
    repeated_ground_truths: `batch` ground truths.

  Returns:
    Rewards `[batch]` float32, and statistics: mean, standard deviation, minimum and maximum
    of the rewards, and the mean of every other score.

  Raises:
    ValueError: if the numbers of responses and ground truths differ, or are 0.
  """
  batch = len(rollout_responses)
  if len(repeated_ground_truths) != batch or not batch:
    raise ValueError(
      f"there are {batch} responses and {len(repeated_ground_truths)} ground truths; the "
      "numbers must be equal and at least 1"
    )
  pairs = zip(rollout_responses, repeated_ground_truths, strict=True)
  scores = [reward_fn(response, truth) for response, truth in pairs]
  raw = jnp.asarray([score["reward"] for score in scores], jnp.float32)
  statistics = {"mean": raw.mean(), "std": raw.std(), "min": raw.min(), "max": raw.max()}
  metadata = {f"reward_{name}": float(value) for name, value in statistics.items()}
  for name in scores[0].keys() - {"reward"}:
    metadata[name] = float(np.mean([score[name] for score in scores]))
  return raw, metadata


def split_groups(raw_rewards: Array, group_size: int) -> Array:
  """Returns rewards `[batch]` as `[batch / group_size, group_size]`.

  Args:
    raw_rewards: `[batch]`, one group after the other.
    group_size: number of responses per prompt.

  Returns:
    The rewards, with a row per group.

  Raises:
    ValueError: if the group size does not divide the number of rewards.
  """
  batch = len(raw_rewards)
  if group_size < 1 or not batch or batch % group_size:
    raise ValueError(
      f"group_size is {group_size}; it must divide the number of responses, which is "
      f"{batch}"
    )
  return jnp.asarray(raw_rewards).reshape(-1, group_size)


def _truths(ground_truth: GroundTruth) -> list[str]:
  """Returns the right answers as text."""
  many = isinstance(ground_truth, Sequence) and not isinstance(ground_truth, str)
  truths = [str(x) for x in (ground_truth if many else [ground_truth])]
  if not truths:
    raise ValueError("ground_truth is empty; it must have at least one answer")
  return truths


def _three_rewards(formatted: bool, correct: bool) -> dict[str, float]:
  return {
    "format_reward": float(formatted),
    "answer_reward": float(correct),
    "reward": float(correct),
  }
