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
  shapes = (prompts, group, prompt_length, completion_length)
  rollout, feedback = input_shapes(algorithm, *shapes, step_rewards)

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

  jax.eval_shape(prepare_and_loss, rollout, feedback, rollout.logp)


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
  unused = []
  if step_rewards and _traces(algorithm, shapes, False):
    unused.append("step_rewards")
  for name, absent in (("baseline", None), ("greedy_baseline", False), ("components", ())):
    without = dataclasses.replace(algorithm, **{name: absent})
    if getattr(algorithm, name) and _traces(without, shapes, step_rewards):
      unused.append(name)
  return unused


def _traces(algorithm: Algorithm, shapes: tuple[int, ...], step_rewards: bool) -> bool:
  """Returns whether the algorithm can be traced."""
  try:
    trace(algorithm, *shapes, step_rewards)
  except (TypeError, ValueError):  # an advantage made elsewhere may add None to an array
    return False
  return True


def input_shapes(
  algorithm: Algorithm,
  prompts: int,
  group: int,
  prompt_length: int,
  completion_length: int,
  step_rewards: bool = False,
) -> tuple[Rollout, Feedback]:
  """Returns the shapes of a rollout and of the feedback that an algorithm needs.

  The arguments are those of `trace`.
  """

  def shape(dtype: jnp.dtype, *axes: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((prompts, *axes), dtype)

  tokens, components = (group, completion_length), len(algorithm.components)
  rollout = Rollout(
    prompt_tokens=shape(jnp.int32, prompt_length),
    prompt_mask=shape(jnp.bool_, prompt_length),
    tokens=shape(jnp.int32, *tokens),
    token_mask=shape(jnp.bool_, *tokens),
    action_mask=shape(jnp.bool_, *tokens),
    logp=shape(jnp.float32, *tokens),
    sample_logp=shape(jnp.float32, *tokens),
    finished=shape(jnp.bool_, group),
  )
  feedback = Feedback(
    rewards=shape(jnp.float32, group),
    valid=shape(jnp.bool_, group),
    greedy_rewards=shape(jnp.float32) if algorithm.greedy_baseline else None,
    step_rewards=shape(jnp.float32, *tokens) if step_rewards else None,
    step_ends=shape(jnp.bool_, *tokens) if step_rewards else None,
    components=shape(jnp.float32, group, components) if components else None,
  )
  return rollout, feedback
