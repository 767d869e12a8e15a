"""The compiled steps of a run, shared by runs of the same settings in a process."""

import dataclasses
import functools
from collections.abc import Callable
from typing import NamedTuple

from jax.sharding import Mesh

from pgax.distributed.partitioning import batch_shards, shardings_of
from pgax.learner.config import StepConfig
from pgax.learner.learner import Learner, make_learner
from pgax.learner.optimizer import make_optimizer
from pgax.learner.policy_step import make_policy_step
from pgax.learner.state import TrainState, abstract_state
from pgax.learner.supervised_step import make_supervised_step


class CompiledSteps(NamedTuple):
  """The steps of a run, and the layout of its state.

  Attributes:
    learner: learner of the reinforcement stage.
    supervised_learner: learner of the supervised stage.
    abstract: shapes and shardings of the state, the same in both stages.
    supervised_step: step of the supervised stage.
    policy_step: step of the reinforcement stage.
    critic_step: the same step with the policy frozen; None without critic pretraining.
  """

  learner: Learner
  supervised_learner: Learner
  abstract: TrainState
  supervised_step: Callable
  policy_step: Callable
  critic_step: Callable | None


def compiled_steps(config: StepConfig, mesh: Mesh) -> CompiledSteps:
  """Builds the steps of a run, or returns those of an earlier run with equal settings.

  Nothing is then traced again if a run resumes in the same process, or if runs differ only
  in their seeds. The steps of the last two settings are kept.

  Args:
    config: step settings; with the mesh, the complete key.
    mesh: mesh of devices.

  Returns:
    `CompiledSteps`.
  """
  try:
    hash(config)
  except TypeError:  # a part of the algorithm has no hash
    return _build(config, mesh)
  return _cached(config, mesh)


def _build(config: StepConfig, mesh: Mesh) -> CompiledSteps:
  learner = make_learner(config, batch_shards(mesh))
  # Preflight checks that both optimizers are of one kind: the state has one layout.
  supervised_learner = dataclasses.replace(
    learner, optimizer=make_optimizer(config.supervised_optimizer)
  )
  abstract = abstract_state(learner, mesh)
  shardings = shardings_of(abstract)
  critic_step, critic = None, config.algorithm.critic
  if critic and critic.pretraining_steps:
    frozen_policy = dataclasses.replace(learner, learn_policy=False)
    critic_step = make_policy_step(frozen_policy, shardings)
  return CompiledSteps(
    learner=learner,
    supervised_learner=supervised_learner,
    abstract=abstract,
    supervised_step=make_supervised_step(
      supervised_learner,
      normalize_constant=config.normalize_constant,
      microbatches=config.supervised_microbatches,
      shardings=shardings,
    ),
    policy_step=make_policy_step(learner, shardings),
    critic_step=critic_step,
  )


_cached = functools.lru_cache(maxsize=2)(_build)


def clear() -> None:
  """Forgets the steps that are kept, and with them their compiled programs."""
  _cached.cache_clear()
