"""The functions of Stanford's CS336 (2026), assignment 5, on flat JAX arrays.

This edition separates rewards, advantages, losses and their aggregation. Names, arguments
and shapes are the assignment's: responses and rewards `[batch]`, one group after the other,
and log-probabilities `[batch, length]`. Every function calls the library. The assignment's
`grpo_train_step` changes a PyTorch model in place; `docs/cs336.md` shows it.
"""

from typing import Any, Literal, get_args

import jax.numpy as jnp

from pgax.interop.cs336_shared import (
  compute_entropy,
  get_response_log_probs,
  question_only_reward_fn,
  r1_zero_reward_fn,
  split_groups,
  tokenize_prompt_and_output,
)
from pgax.interop.cs336_shared import score_rollouts as compute_rollout_rewards
from pgax.ops import advantages as group_advantages
from pgax.ops import aggregation, masking, surrogates
from pgax.types import Array

__all__ = [
  "aggregate_loss_across_microbatch",
  "compute_entropy",
  "compute_group_normalized_rewards",
  "compute_policy_gradient_loss",
  "compute_rollout_rewards",
  "get_response_log_probs",
  "question_only_reward_fn",
  "r1_zero_reward_fn",
  "tokenize_prompt_and_output",
]

Baseline = Literal["mean", "none"]
Normalizer = Literal["std", "none", "mean"]
Reweighting = Literal["none", "noclip", "grpo", "gspo"]
Normalization = Literal["sequence", "constant"]


def compute_group_normalized_rewards(
  raw_rewards: Array,
  group_size: int,
  baseline: Baseline = "mean",
  advantage_eps: float = 1e-6,
  advantage_normalizer: Normalizer = "std",
) -> tuple[Array, dict[str, float]]:
  """Computes advantages within groups.

  `mean` and `std` are GRPO, `mean` and `none` Dr. GRPO, `mean` and `mean` MaxRL, and `none`
  and `none` rejection-sampling fine-tuning (RFT); see `advantages`.

  Args:
    raw_rewards: `[batch]`, one group after the other.
    group_size: number of responses per prompt.
    baseline: `mean` subtracts the mean of the group.
    advantage_eps: constant added to the divisor, in units of reward.
    advantage_normalizer: `std` divides by the sample standard deviation of the group
      (ddof 1), `mean` by its mean.

  Returns:
    Advantages `[batch]`, and statistics: mean and standard deviation of the advantages.

  Raises:
    ValueError: if the group size does not divide the number of rewards, a name is unknown,
      or `advantage_eps` is negative.
  """
  _check("baseline", baseline, Baseline)
  _check("advantage_normalizer", advantage_normalizer, Normalizer)
  if not advantage_eps >= 0:
    raise ValueError(f"advantage_eps is {advantage_eps}; it must be at least 0")
  grouped = split_groups(raw_rewards, group_size)
  centered = group_advantages.dr_grpo(grouped) if baseline == "mean" else grouped
  if (baseline, advantage_normalizer) == ("mean", "std"):
    advantages = group_advantages.grpo(grouped, ddof=1, eps=advantage_eps)
  elif advantage_normalizer == "std":
    std = jnp.std(grouped, axis=-1, keepdims=True, ddof=1)
    advantages = centered / (std + advantage_eps)
  elif advantage_normalizer == "mean":
    mean = jnp.mean(grouped, axis=-1, keepdims=True)
    advantages = centered / (mean + advantage_eps)
  else:
    advantages = centered
  statistics = {"mean": advantages.mean(), "std": advantages.std()}
  metadata = {f"advantage_{name}": float(value) for name, value in statistics.items()}
  return advantages.reshape(-1), metadata


def compute_policy_gradient_loss(
  raw_rewards_or_advantages: Array,
  policy_log_probs: Array,
  importance_reweighting_method: Reweighting = "none",
  old_log_probs: Array | None = None,
  cliprange: float | None = None,
  response_mask: Array | None = None,
) -> tuple[Array, dict[str, Array]]:
  """Computes the policy-gradient loss of every token.

  `none` is `surrogates.policy_gradient`, `noclip` is `surrogates.unclipped`, `grpo` is
  `surrogates.clipped`, and `gspo` is `surrogates.gspo`, at masked tokens too.

  Args:
    raw_rewards_or_advantages: `[batch]` or `[batch, 1]`.
    policy_log_probs: `[batch, length]`, in nats.
    importance_reweighting_method: all but `none` require `old_log_probs`; `grpo` and
      `gspo` also require `cliprange`.
    old_log_probs: `[batch, length]`, in nats.
    cliprange: largest distance of the ratio from 1, in both directions. Above 1, there is
      no lower bound, since a ratio is never negative.
    response_mask: `[batch, length]` bool or 0/1, the tokens whose log-ratios `gspo`
      averages; None for all.

  Returns:
    `[batch, length]`, and metadata: `clipped` `[batch, length]`, true on tokens at which
    the clip acts.

  Raises:
    ValueError: if the method is unknown, or an argument that it requires is None.
  """
  method, logp = importance_reweighting_method, jnp.asarray(policy_log_probs)
  _check("importance_reweighting_method", method, Reweighting)
  column = jnp.reshape(jnp.asarray(raw_rewards_or_advantages), (len(logp), 1))
  tokens = jnp.broadcast_to(column, logp.shape)
  if method == "none":
    return surrogates.policy_gradient(logp, tokens).loss, {}
  if old_log_probs is None or (method != "noclip" and cliprange is None):
    needed = "old_log_probs" if method == "noclip" else "old_log_probs and cliprange"
    raise ValueError(f"importance_reweighting_method {method!r} requires {needed}")
  old_log_probs = jnp.asarray(old_log_probs)
  if method == "noclip":
    return surrogates.unclipped(logp, old_log_probs, tokens).loss, {}
  bounds = (min(cliprange, 1.0), cliprange)
  if method == "grpo":
    loss, clipped = surrogates.clipped(logp, old_log_probs, tokens, *bounds)
  else:
    mask = jnp.ones(logp.shape, bool) if response_mask is None else response_mask
    loss, clipped = surrogates.gspo(logp, old_log_probs, tokens, mask, *bounds)
    # The loss of a response is the same at all its tokens, and here at all others too.
    loss = jnp.broadcast_to(masking.masked_mean(loss, mask, -1)[:, None], logp.shape)
  return loss, {"clipped": clipped}


def aggregate_loss_across_microbatch(
  per_token_policy_gradient_loss: Array,
  mask: Array,
  loss_normalization: Normalization = "sequence",
  normalization_constant: float | None = None,
) -> Array:
  """Reduces losses of tokens to the loss of a microbatch.

  Args:
    per_token_policy_gradient_loss: `[batch, length]`.
    mask: `[batch, length]` bool or 0/1, true on tokens of responses.
    loss_normalization: `sequence` averages over the tokens of each response, then over
      responses (see `aggregation.sequence_mean`; empty responses are left out); `constant`
      divides the sum over all tokens by a constant.
    normalization_constant: divisor of the sum; required by `constant`.

  Returns:
    Scalar.

  Raises:
    ValueError: if the normalization is unknown, or its constant is missing or not positive.
  """
  _check("loss_normalization", loss_normalization, Normalization)
  if loss_normalization == "sequence":
    weights = aggregation.sequence_mean(mask)
    losses = jnp.asarray(per_token_policy_gradient_loss)
    return masking.masked_sum(weights * losses, mask)
  if normalization_constant is None or not normalization_constant > 0:
    raise ValueError(
      f"normalization_constant is {normalization_constant}; loss_normalization 'constant' "
      "requires a positive number"
    )
  return masking.masked_sum(per_token_policy_gradient_loss, mask) / normalization_constant


def _check(name: str, value: str, allowed: Any) -> None:
  if value not in get_args(allowed):
    raise ValueError(f"{name} is {value!r}; allowed are {', '.join(get_args(allowed))}")
