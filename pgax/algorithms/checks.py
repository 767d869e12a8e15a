"""Checks of an algorithm on shapes alone, before anything is compiled."""

import dataclasses

import jax
import jax.numpy as jnp

from pgax.algorithms.loss import loss
from pgax.algorithms.prepare import prepare
from pgax.algorithms.spec import Algorithm
from pgax.types import Feedback, Rollout


def trace(
  algorithm: Algorithm,
  prompts: int,
  group: int,
  prompt_length: int,
  completion_length: int,
  step_rewards: bool = False,
) -> None:
  """Traces `prepare` and `loss` on shapes, with only the inputs that the algorithm needs.

  Args:
    algorithm: the algorithm.
    prompts: number of prompts `N`.
    group: number of completions per prompt `G`.
    prompt_length: number of prompt tokens `P`.
    completion_length: number of completion tokens `T`.
    step_rewards: whether steps of completions are rewarded.

  Raises:
    ValueError: if a part rejects its inputs. Parts made elsewhere may raise other errors.
  """
  completion = (prompts, group, completion_length)
  floats = jax.ShapeDtypeStruct(completion, jnp.float32)
  rollout = _rollout(completion, prompt_length)
  feedback = _feedback(
    completion, algorithm.greedy_baseline, step_rewards, len(algorithm.components)
  )

  def prepare_and_loss(rollout, feedback, logp):
    values = logp if algorithm.critic else None
    batch = prepare(
      algorithm,
      rollout,
      feedback,
      logp if algorithm.needs_old_logp else None,
      logp if algorithm.needs_reference else None,
      baseline=algorithm.baseline.init() if algorithm.baseline else None,
      values=values,
      end_values=logp[..., 0] if algorithm.bootstraps else None,
      entropy=logp if algorithm.token_filter else None,
    )
    entropy = logp if algorithm.entropy else None
    return loss(algorithm, logp, batch, outputs=values, entropy=entropy)

  jax.eval_shape(prepare_and_loss, rollout, feedback, floats)


def unused_inputs(
  algorithm: Algorithm,
  prompts: int,
  group: int,
  prompt_length: int,
  completion_length: int,
  step_rewards: bool = False,
) -> list[str]:
  """Names the inputs that are provided but that no part of the algorithm uses.

  A part raises an error if an input that it uses is None, so an input is unused if the
  algorithm can be traced without it.

  Args:
    algorithm: the algorithm, which `trace` accepts.
    prompts: number of prompts `N`.
    group: number of completions per prompt `G`.
    prompt_length: number of prompt tokens `P`.
    completion_length: number of completion tokens `T`.
    step_rewards: whether steps of completions are rewarded.

  Returns:
    Those of `step_rewards`, `baseline`, `greedy_baseline` and `components` that are unused.
  """
  shapes = (prompts, group, prompt_length, completion_length)
  without = {}  # the algorithm without an input, and whether steps are rewarded then
  if step_rewards:
    without["step_rewards"] = (algorithm, False)
  if algorithm.baseline:
    without["baseline"] = (dataclasses.replace(algorithm, baseline=None), step_rewards)
  if algorithm.greedy_baseline:
    changed = dataclasses.replace(algorithm, greedy_baseline=False)
    without["greedy_baseline"] = (changed, step_rewards)
  if algorithm.components:
    without["components"] = (dataclasses.replace(algorithm, components=()), step_rewards)
  return [
    name for name, (changed, steps) in without.items() if _traces(changed, shapes, steps)
  ]


def _traces(algorithm: Algorithm, shapes: tuple[int, ...], step_rewards: bool) -> bool:
  """Returns whether the algorithm can be traced."""
  try:
    trace(algorithm, *shapes, step_rewards)
  except (TypeError, ValueError):  # an advantage made elsewhere may add None to an array
    return False
  return True


def _rollout(completion: tuple[int, ...], prompt_length: int) -> Rollout:
  """The shapes of a rollout."""
  prompt = (completion[0], prompt_length)
  bools = jax.ShapeDtypeStruct(completion, jnp.bool_)
  floats = jax.ShapeDtypeStruct(completion, jnp.float32)
  return Rollout(
    prompt_tokens=jax.ShapeDtypeStruct(prompt, jnp.int32),
    prompt_mask=jax.ShapeDtypeStruct(prompt, jnp.bool_),
    tokens=jax.ShapeDtypeStruct(completion, jnp.int32),
    token_mask=bools,
    action_mask=bools,
    logp=floats,
    sample_logp=floats,
    finished=jax.ShapeDtypeStruct(completion[:-1], jnp.bool_),
  )


def _feedback(
  completion: tuple[int, ...], greedy: bool, step_rewards: bool, components: int
) -> Feedback:
  """The shapes of a rollout's feedback."""
  prompts, group = completion[:1], completion[:-1]
  steps = jax.ShapeDtypeStruct(completion, jnp.float32)
  scores = jax.ShapeDtypeStruct((*group, components), jnp.float32)
  ends = jax.ShapeDtypeStruct(completion, jnp.bool_)
  return Feedback(
    rewards=jax.ShapeDtypeStruct(group, jnp.float32),
    valid=jax.ShapeDtypeStruct(group, jnp.bool_),
    greedy_rewards=jax.ShapeDtypeStruct(prompts, jnp.float32) if greedy else None,
    step_rewards=steps if step_rewards else None,
    step_ends=ends if step_rewards else None,
    components=scores if components else None,
  )
