"""The compiled steps of a run, shared by runs of the same settings in a process."""

import dataclasses
import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
from jax.sharding import Mesh

from pgax.algorithms import combine
from pgax.distributed.partitioning import shardings_of
from pgax.learner.config import StepConfig
from pgax.learner.learner import Learner, make_learner
from pgax.learner.numbers import Numbers, example, partition_steps
from pgax.learner.optimizer import make_optimizer
from pgax.learner.policy_step import policy_step
from pgax.learner.state import TrainState, abstract_state
from pgax.learner.supervised_step import supervised_step
from pgax.learner.update import Update
from pgax.types import DemonstrationRows, Feedback, PyTree, Rollout


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


class BoundStep(functools.partial):
  """A jitted step that has got the numbers of its settings, its first argument."""

  @property
  def program(self) -> Callable:
    """The jitted function, shared by all settings of one structure."""
    return self.func

  @property
  def numbers(self) -> Numbers:
    """The numbers; see `numbers.partition_steps`."""
    return self.args[0]

  def lower(self, state: TrainState, *data: PyTree) -> jax.stages.Lowered:
    """Lowers the program; see `jax.jit`."""
    return self.func.lower(*self.args, state, *data)


class _Programs(NamedTuple):
  """The jitted steps of all settings of one structure; see `CompiledSteps`.

  The first argument of each is the settings' numbers.
  """

  abstract: TrainState
  supervised_step: Callable
  policy_step: Callable
  critic_step: Callable | None


def compiled_steps(config: StepConfig, mesh: Mesh) -> CompiledSteps:
  """Builds the steps of a run, or returns those of an earlier run with equal settings.

  Nothing is then traced again if a run resumes in the same process, or if runs differ only
  in their seeds or in the numbers of `numbers.partition_steps`. The steps of the last two
  settings, and the programs of the last two structures, are kept.

  Args:
    config: step settings; with the mesh, the complete key.
    mesh: mesh of devices.

  Returns:
    `CompiledSteps`.
  """
  try:
    hash(config)
  except TypeError:  # a part of the algorithm has no hash
    return _bind(config, mesh, _build)
  return _cached_steps(config, mesh)


def _bind(
  config: StepConfig, mesh: Mesh, build: Callable[[StepConfig, Mesh], _Programs]
) -> CompiledSteps:
  """Gives the numbers of settings to the programs of their structure."""
  structure, numbers = partition_steps(config)
  programs = build(structure, mesh)
  learner = make_learner(config, mesh)
  return CompiledSteps(
    learner=learner,
    supervised_learner=_supervised(learner, config),
    abstract=programs.abstract,
    **{
      name: program and BoundStep(program, numbers)
      for name, program in programs._asdict().items()
      if name != "abstract"
    },
  )


def _supervised(learner: Learner, config: StepConfig) -> Learner:
  # Preflight checks that both optimizers are of one kind: the state has one layout.
  optimizer = make_optimizer(config.supervised_optimizer)
  return dataclasses.replace(learner, optimizer=optimizer)


def _build(structure: StepConfig, mesh: Mesh) -> _Programs:
  critic = structure.algorithm.critic
  pretrains = critic is not None and critic.pretraining_steps > 0
  abstract = abstract_state(make_learner(example(structure)), mesh)
  out_shardings = (shardings_of(abstract), None)

  def jitted(step: Callable) -> Callable:
    return jax.jit(step, donate_argnums=1, out_shardings=out_shardings)

  def supervised(numbers: Numbers, state: TrainState, rows: DemonstrationRows) -> tuple:
    config = combine(structure, numbers)
    state, metrics = supervised_step(
      _supervised(make_learner(config, mesh), config),
      state,
      rows,
      normalize_constant=config.normalize_constant,
      microbatches=config.supervised_microbatches,
    )
    return state, Update(metrics)

  def update(
    numbers: Numbers,
    state: TrainState,
    rollout: Rollout,
    feedback: Feedback,
    learn_policy: bool = True,
  ) -> tuple:
    learner = make_learner(combine(structure, numbers), mesh)
    learner = dataclasses.replace(learner, learn_policy=learn_policy)
    return policy_step(learner, state, rollout, feedback)

  frozen = functools.partial(update, learn_policy=False)
  return _Programs(
    abstract, jitted(supervised), jitted(update), jitted(frozen) if pretrains else None
  )


_cached_programs = functools.lru_cache(maxsize=2)(_build)
_cached_steps = functools.lru_cache(maxsize=2)(
  functools.partial(_bind, build=_cached_programs)
)


def clear() -> None:
  """Forgets the steps that are kept, and with them their compiled programs."""
  _cached_steps.cache_clear()
  _cached_programs.cache_clear()
