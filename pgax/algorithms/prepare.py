"""Turns a rollout and its feedback into a batch: all reductions over completions."""

import types
from collections.abc import Mapping

import chex
import jax.numpy as jnp

from pgax.algorithms.spec import Algorithm, PositiveNLL
from pgax.ops import aggregation
from pgax.ops.masking import masked_sum, select
from pgax.types import AdvantageInputs, Array, Batch, Feedback, Rollout


def prepare(
  algorithm: Algorithm,
  rollout: Rollout,
  feedback: Feedback,
  old_logp: Array | None = None,
  ref_logp: Array | None = None,
  *,
  frozen_logp: Mapping[str, Array] = types.MappingProxyType({}),
  kl_coef: Array | float = 0.0,
  baseline: Array | None = None,
  values: Array | None = None,
  end_values: Array | None = None,
  entropy: Array | None = None,
) -> Batch:
  """Turns a rollout and its rewards into a training batch.

  It receives the global batch and is the only function that reduces over completions.
  Everything after it (minibatches, microbatches, devices) splits a weighted sum.

  Args:
    algorithm: the algorithm.
    rollout: the completions.
    feedback: their rewards. A completion that is not valid takes no part, nor does any of a
      prompt whose greedy completion could not be scored.
    old_logp: `[N, G, T]` log-probabilities (nats) from the trainer's forward pass before
      the update; may be None unless `algorithm.needs_old_logp`.
    ref_logp: `[N, G, T]` log-probabilities (nats) under the reference policy; may be None
      unless `algorithm.needs_reference`.
    frozen_logp: the same under frozen policies by their names, the reference among them.
    kl_coef: coefficient of a KL penalty in the reward.
    baseline: scalar, the moving average before this step; None without one.
    values: `[N, G, T]` the critic's values before the update; None without a critic.
    end_values: `[N, G]` its values after the last token; may be None unless the critic has
      `bootstrap_truncated`.
    entropy: `[N, G, T]` entropies of the policy before the update, nats; may be None unless
      the algorithm has a `token_filter`.

  Returns:
    A `Batch`, 0 outside of its loss mask.

  Raises:
    ValueError: if an input that the algorithm needs is None.
  """
  frozen_logp = dict(frozen_logp)
  if ref_logp is not None:
    frozen_logp["reference"] = ref_logp
  ref_logp = frozen_logp.get("reference")
  _check_given(algorithm, old_logp, ref_logp, end_values, entropy)
  _check_shapes(rollout, feedback, old_logp, ref_logp)
  inputs = _advantage_inputs(
    algorithm, rollout, feedback, old_logp, ref_logp, kl_coef, baseline, values
  )
  if algorithm.bootstraps:
    truncated = inputs.valid & ~rollout.finished
    inputs = inputs.replace(end_values=select(end_values, truncated))
  mask = _loss_mask(algorithm, rollout, feedback, inputs)
  surrogate_mask = _surrogate_mask(algorithm, entropy, mask)
  targets = algorithm.critic.target(inputs) if algorithm.critic is not None else None
  return Batch(
    prompt_tokens=rollout.prompt_tokens,
    prompt_mask=rollout.prompt_mask,
    tokens=rollout.tokens,
    token_mask=rollout.token_mask,
    loss_mask=mask,
    rewards=inputs.rewards,
    valid=inputs.valid,
    advantages=_token_advantages(algorithm, inputs, mask),
    weights=algorithm.aggregation(mask),
    old_logp=_select_given(old_logp, mask),
    frozen_logp={name: select(x, mask) for name, x in frozen_logp.items()},
    sampler_weights=_sampler_weights(algorithm, rollout, old_logp, mask, surrogate_mask),
    surrogate_mask=surrogate_mask,
    nll_weights=_nll_weights(algorithm.nll_loss, feedback, mask),
    old_values=_select_given(inputs.values, mask),
    targets=_select_given(targets, mask),
    rollout_logp=select(rollout.logp, mask),
    experts=rollout.experts,
  )


def _check_given(
  algorithm: Algorithm,
  old_logp: Array | None,
  ref_logp: Array | None,
  end_values: Array | None,
  entropy: Array | None,
) -> None:
  if algorithm.needs_old_logp and old_logp is None:
    raise ValueError(
      f"old_logp is None, but the algorithm needs it: epochs is {algorithm.epochs}, "
      f"minibatches is {algorithm.minibatches}, kl is {algorithm.kl} and "
      f"sampler_correction is {algorithm.sampler_correction}"
    )
  if algorithm.needs_reference and ref_logp is None:
    raise ValueError(
      f"ref_logp is None, but the algorithm needs it: kl is {algorithm.kl} and surrogate "
      f"is {algorithm.surrogate}"
    )
  if algorithm.bootstraps and end_values is None:
    raise ValueError("end_values is None, but critic.bootstrap_truncated is True")
  if algorithm.token_filter is not None and entropy is None:
    raise ValueError(f"entropy is None, but token_filter {algorithm.token_filter} reads it")


def _check_shapes(
  rollout: Rollout, feedback: Feedback, old_logp: Array | None, ref_logp: Array | None
) -> None:
  logps = [x for x in (old_logp, ref_logp) if x is not None]
  chex.assert_equal_shape([rollout.tokens, rollout.token_mask, rollout.action_mask, *logps])
  chex.assert_shape([feedback.rewards, feedback.valid], rollout.tokens.shape[:2])


def _select_given(x: Array | None, mask: Array) -> Array | None:
  return None if x is None else select(x, mask)


def _loss_mask(
  algorithm: Algorithm, rollout: Rollout, feedback: Feedback, inputs: AdvantageInputs
) -> Array:
  """The actions of valid completions that the filter selects."""
  if algorithm.completion_filter is None:
    return inputs.action_mask
  rewards = select(jnp.asarray(feedback.rewards, jnp.float32), inputs.valid)
  selected = algorithm.completion_filter(rewards, inputs.valid, rollout)
  return inputs.action_mask & selected[..., None]


def _token_advantages(algorithm: Algorithm, inputs: AdvantageInputs, mask: Array) -> Array:
  """Advantages `[N, G, T]`; one for a completion is repeated at each of its tokens."""
  advantages = algorithm.advantage(inputs)
  if advantages.ndim == inputs.rewards.ndim:
    advantages = jnp.broadcast_to(advantages[..., None], mask.shape)
  chex.assert_equal_shape([advantages, mask])
  return select(advantages, mask)


def _sampler_weights(
  algorithm: Algorithm,
  rollout: Rollout,
  old_logp: Array | None,
  mask: Array,
  surrogate_mask: Array | None,
) -> Array:
  weights = jnp.ones(mask.shape, jnp.float32)
  if algorithm.sampler_correction is not None:
    trainer, sampler = select(old_logp, mask), select(rollout.sample_logp, mask)
    weights = select(algorithm.sampler_correction(trainer, sampler, mask), mask)
  return weights if surrogate_mask is None else select(weights, surrogate_mask)


def _surrogate_mask(
  algorithm: Algorithm, entropy: Array | None, mask: Array
) -> Array | None:
  if algorithm.token_filter is None:
    return None
  return algorithm.token_filter(select(entropy, mask), mask) & mask


def _nll_weights(part: PositiveNLL | None, feedback: Feedback, mask: Array) -> Array | None:
  if part is None:
    return None
  correct = select(feedback.rewards, feedback.valid, fill=-jnp.inf) > part.threshold
  return part.coef * aggregation.token_mean(mask & correct[..., None])


def _advantage_inputs(
  algorithm: Algorithm,
  rollout: Rollout,
  feedback: Feedback,
  old_logp: Array | None,
  ref_logp: Array | None,
  kl_coef: Array | float,
  baseline: Array | None,
  values: Array | None,
) -> AdvantageInputs:
  """Shaped and penalized rewards, and all other inputs, 0 where masked."""
  valid, greedy = jnp.asarray(feedback.valid, bool), feedback.greedy_rewards
  if greedy is not None:
    valid = valid & jnp.isfinite(greedy)[..., None]
    greedy = select(jnp.asarray(greedy, jnp.float32), jnp.isfinite(greedy))
  components = feedback.components if algorithm.components else None
  if components is not None:
    chex.assert_axis_dimension(components, -1, len(algorithm.components))
    valid = valid & jnp.all(jnp.isfinite(components), axis=-1)
    scored = jnp.broadcast_to(valid[..., None], components.shape)
    components = select(jnp.asarray(components, jnp.float32), scored)
  mask = rollout.action_mask & valid[..., None]
  rewards = select(jnp.asarray(feedback.rewards, jnp.float32), valid)
  for shape in algorithm.shaping:
    rewards = select(shape(rewards, valid, rollout), valid)
  penalty = jnp.zeros(mask.shape, jnp.float32)
  if algorithm.kl is not None and algorithm.kl.placement == "reward":
    estimate = algorithm.kl.estimator(select(old_logp, mask), select(ref_logp, mask))
    penalty = select(kl_coef * estimate, mask)
  ends = feedback.step_ends
  return AdvantageInputs(
    rewards=rewards - masked_sum(penalty, mask, axis=-1),
    valid=valid,
    action_mask=mask,
    penalty=penalty,
    baseline=baseline,
    values=_select_given(values, mask),
    greedy_rewards=greedy,
    step_rewards=feedback.step_rewards,
    step_ends=None if ends is None else ends & mask,
    components=components,
  )
