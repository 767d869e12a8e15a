"""The functions of Stanford's CS336 (2025), assignment 5, on flat JAX arrays.

Names, arguments and shapes are the assignment's: responses `[batch]`, one group after the
other, log-probabilities `[batch, length]` and advantages `[batch, 1]`. Every function calls
the library and adds no formula. JAX has no `.backward()`, so the microbatch steps also
return the gradient.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import chex
import jax
import jax.numpy as jnp

from pgax.interop import cs336_2026
from pgax.interop.cs336_shared import (
  compute_entropy,
  get_response_log_probs,
  masked_normalize,
  question_only_reward_fn,
  r1_zero_reward_fn,
  score_rollouts,
  split_groups,
  tokenize_prompt_and_output,
)
from pgax.ops import advantages as group_advantages
from pgax.ops import aggregation, masking
from pgax.types import Array

__all__ = [
  "compute_entropy",
  "compute_group_normalized_rewards",
  "compute_grpo_clip_loss",
  "compute_naive_policy_gradient_loss",
  "compute_policy_gradient_loss",
  "get_response_log_probs",
  "grpo_microbatch_train_step",
  "masked_mean",
  "masked_normalize",
  "question_only_reward_fn",
  "r1_zero_reward_fn",
  "sft_microbatch_train_step",
  "tokenize_prompt_and_output",
]

LossType = Literal["no_baseline", "reinforce_with_baseline", "grpo_clip", "grpo_no_clip"]
# The 2026 edition's name of a loss, and the arguments that it requires, its weight first.
_REQUIRED = {
  "no_baseline": ("none", "raw_rewards"),
  "reinforce_with_baseline": ("none", "advantages"),
  "grpo_clip": ("grpo", "advantages", "old_log_probs", "cliprange"),
  "grpo_no_clip": ("noclip", "advantages", "old_log_probs"),
}


def compute_group_normalized_rewards(
  reward_fn: Callable[[str, str], Mapping[str, float]],
  rollout_responses: Sequence[str],
  repeated_ground_truths: Sequence[str],
  group_size: int,
  advantage_eps: float,
  normalize_by_std: bool,
) -> tuple[Array, Array, dict[str, float]]:
  """Scores responses, and computes their advantages within groups.

  The advantage is `(R - mean) / (std + advantage_eps)` with the sample standard deviation
  (ddof 1), or `R - mean`. See `advantages.grpo` and `advantages.dr_grpo`.

  Args:
    reward_fn: maps a response and a ground truth to named scores, `reward` among them.
    rollout_responses: `batch` responses, one group after the other.
    repeated_ground_truths: `batch` ground truths, each repeated `group_size` times.
    group_size: number of responses per prompt.
    advantage_eps: constant added to the standard deviation, in units of reward.
    normalize_by_std: whether to divide by the standard deviation.

  Returns:
    Advantages `[batch]`, raw rewards `[batch]`, and statistics: mean, standard deviation,
    minimum and maximum of the rewards, and the mean of every other score.

  Raises:
    ValueError: if the numbers of responses and ground truths differ, or the group size does
      not divide them.
  """
  raw, metadata = score_rollouts(reward_fn, rollout_responses, repeated_ground_truths)
  grouped = split_groups(raw, group_size)
  if normalize_by_std:
    normalized = group_advantages.grpo(grouped, ddof=1, eps=advantage_eps)
  else:
    normalized = group_advantages.dr_grpo(grouped)
  return normalized.reshape(-1), raw, metadata


def _loss(column: Array, log_probs: Array, *args: Any) -> tuple[Array, dict[str, Array]]:
  """Computes a loss as in 2026, of weights that are `[batch, 1]`."""
  chex.assert_shape(jnp.asarray(column), (len(log_probs), 1))
  return cs336_2026.compute_policy_gradient_loss(column, log_probs, *args)


def compute_naive_policy_gradient_loss(
  raw_rewards_or_advantages: Array, policy_log_probs: Array
) -> Array:
  """Computes the loss `-A * logp` of every token; see `surrogates.policy_gradient`.

  Args:
    raw_rewards_or_advantages: `[batch, 1]`.
    policy_log_probs: `[batch, length]`, in nats.

  Returns:
    `[batch, length]` float32.
  """
  return _loss(raw_rewards_or_advantages, policy_log_probs)[0]


def compute_grpo_clip_loss(
  advantages: Array, policy_log_probs: Array, old_log_probs: Array, cliprange: float
) -> tuple[Array, dict[str, Array]]:
  """Computes PPO's clipped loss of every token; see `surrogates.clipped`.

  Args:
    advantages: `[batch, 1]`.
    policy_log_probs: `[batch, length]`, in nats.
    old_log_probs: `[batch, length]`, in nats.
    cliprange: largest distance of the ratio from 1, in both directions. Above 1, there is
      no lower bound, since a ratio is never negative.

  Returns:
    `[batch, length]` float32, and metadata: `clipped` `[batch, length]`, true on tokens at
    which the clip acts.
  """
  return _loss(advantages, policy_log_probs, "grpo", old_log_probs, cliprange)


def compute_policy_gradient_loss(
  policy_log_probs: Array,
  loss_type: LossType,
  raw_rewards: Array | None = None,
  advantages: Array | None = None,
  old_log_probs: Array | None = None,
  cliprange: float | None = None,
) -> tuple[Array, dict[str, Array]]:
  """Computes one of the losses of every token.

  Args:
    policy_log_probs: `[batch, length]`, in nats.
    loss_type: `no_baseline` requires `raw_rewards`; `reinforce_with_baseline` requires
      `advantages`; `grpo_clip` requires `advantages`, `old_log_probs` and `cliprange`;
      `grpo_no_clip` requires `advantages` and `old_log_probs`.
    raw_rewards: `[batch, 1]`.
    advantages: `[batch, 1]`.
    old_log_probs: `[batch, length]`, in nats.
    cliprange: largest distance of the ratio from 1, in both directions.

  Returns:
    `[batch, length]` float32, and metadata of the loss.

  Raises:
    ValueError: if the loss type is unknown, or an argument that it requires is None.
  """
  if loss_type not in _REQUIRED:
    raise ValueError(
      f"loss_type is {loss_type!r}; allowed are 'no_baseline', 'reinforce_with_baseline', "
      "'grpo_clip' and 'grpo_no_clip'"
    )
  given = {
    "raw_rewards": raw_rewards,
    "advantages": advantages,
    "old_log_probs": old_log_probs,
    "cliprange": cliprange,
  }
  method, *required = _REQUIRED[loss_type]
  if missing := [name for name in required if given[name] is None]:
    raise ValueError(f"loss_type {loss_type!r} requires {', '.join(missing)}")
  return _loss(given[required[0]], policy_log_probs, method, old_log_probs, cliprange)


def masked_mean(tensor: Array, mask: Array, dim: int | None = None) -> Array:
  """Averages over entries whose mask is 1.

  Unlike `masking.masked_mean`, the mean of no entries is nan, as in the assignment.

  Args:
    tensor: `[...]`.
    mask: `[...]`, of the same shape.
    dim: axis to reduce; None reduces all axes.

  Returns:
    The mean; nan if the mask is empty.
  """
  count = jnp.sum(jnp.asarray(mask, jnp.float32), axis=dim)
  return masking.masked_sum(tensor, mask, dim) / count


def grpo_microbatch_train_step(
  policy_log_probs: Array,
  response_mask: Array,
  gradient_accumulation_steps: int,
  loss_type: LossType,
  raw_rewards: Array | None = None,
  advantages: Array | None = None,
  old_log_probs: Array | None = None,
  cliprange: float | None = None,
  constant_normalize_factor: float | None = None,
) -> tuple[Array, dict[str, Array], Array]:
  """Computes the loss of a microbatch, and its gradient.

  The loss is the mean over the tokens of each response (see `aggregation.sequence_mean`),
  or their sum divided by a constant (see `aggregation.fixed_length`). Then it is averaged
  over responses and divided by the number of microbatches. So the gradients of equally
  large microbatches add up to that of the batch, unless a response is empty: that has no
  mean, which is nan in the assignment, and is left out here.

  Args:
    policy_log_probs: `[batch, length]`, in nats.
    response_mask: `[batch, length]` bool or 0/1, true on tokens of responses.
    gradient_accumulation_steps: number of microbatches in an optimizer step.
    loss_type: type of the loss; see `compute_policy_gradient_loss` for this and the
      arguments below.
    raw_rewards: `[batch, 1]`.
    advantages: `[batch, 1]`.
    old_log_probs: `[batch, length]`, in nats.
    cliprange: largest distance of the ratio from 1, in both directions.
    constant_normalize_factor: divisor of the sum over the tokens of a response, as in
      Dr. GRPO; None for their number.

  Returns:
    The scalar loss, metadata of the loss (false where masked), and the gradient with
    respect to `policy_log_probs`, `[batch, length]`.

  Raises:
    ValueError: if there are no accumulation steps, the factor is not positive, or the loss
      lacks an argument.
  """
  _check_steps(gradient_accumulation_steps)
  if constant_normalize_factor is None:
    weights = aggregation.sequence_mean(response_mask)
  else:
    weights = _per_response(response_mask, constant_normalize_factor)
  weights = weights / gradient_accumulation_steps

  def loss(log_probs: Array) -> tuple[Array, dict[str, Array]]:
    log_probs = masking.select(log_probs, response_mask)
    tokens, metadata = compute_policy_gradient_loss(
      log_probs, loss_type, raw_rewards, advantages, old_log_probs, cliprange
    )
    metadata = {name: masking.select(x, response_mask) for name, x in metadata.items()}
    return masking.masked_sum(weights * tokens, response_mask), metadata

  log_probs = jnp.asarray(policy_log_probs, jnp.float32)
  (value, metadata), gradient = jax.value_and_grad(loss, has_aux=True)(log_probs)
  return value, metadata, gradient


def sft_microbatch_train_step(
  policy_log_probs: Array,
  response_mask: Array,
  gradient_accumulation_steps: int,
  normalize_constant: float = 1.0,
) -> tuple[Array, dict[str, Array], Array]:
  """Computes the supervised loss of a microbatch, and its gradient.

  The loss is the negative log-likelihood of each response divided by a constant, averaged
  over responses (see `aggregation.fixed_length`), divided by the number of microbatches.

  Args:
    policy_log_probs: `[batch, length]`, in nats.
    response_mask: `[batch, length]` bool or 0/1, true on tokens of responses.
    gradient_accumulation_steps: number of microbatches in an optimizer step.
    normalize_constant: divisor of the sum over the tokens of a response.

  Returns:
    The scalar loss, metadata of the loss, and the gradient with respect to
    `policy_log_probs`, `[batch, length]`.

  Raises:
    ValueError: if there are no accumulation steps, or the constant is not positive.
  """
  _check_steps(gradient_accumulation_steps)
  weights = _per_response(response_mask, normalize_constant) / gradient_accumulation_steps

  def loss(log_probs: Array) -> Array:
    return -masking.masked_sum(weights * log_probs, response_mask)

  log_probs = jnp.asarray(policy_log_probs, jnp.float32)
  value, gradient = jax.value_and_grad(loss)(log_probs)
  return value, {"tokens": jnp.sum(jnp.asarray(response_mask, jnp.int32))}, gradient


def _per_response(mask: Array, constant: float) -> Array:
  """Returns weights of a sum over tokens and a mean over responses, empty ones included."""
  return aggregation.fixed_length(mask, constant, len(mask))


def _check_steps(count: int) -> None:
  if not count >= 1:
    raise ValueError(f"gradient_accumulation_steps is {count}; it must be at least 1")
