"""The jitted steps of a run, which runs of one configuration in a process share."""

import functools
from collections.abc import Callable
from typing import NamedTuple

from jax.sharding import Mesh

from pgax.algorithms import Algorithm
from pgax.models.config import DecoderConfig
from pgax.models.decoder import Decoder
from pgax.models.lora import LoraConfig
from pgax.training.config import RunConfig
from pgax.training.learner import Learner
from pgax.training.optimizer_config import OptimizerConfig
from pgax.training.state import TrainState, abstract_state, make_optimizer, shardings_of
from pgax.training.step import make_train_step
from pgax.training.supervised import make_supervised_step


class Programs(NamedTuple):
  """What learns in each stage, the layout of its state, and its steps."""

  learner: Learner
  supervised_learner: Learner
  abstract: TrainState
  shardings: TrainState
  supervised_step: Callable
  train_step: Callable
  value_step: Callable | None  # in which the critic alone learns


class _Key(NamedTuple):
  """All that decides a run's programs, and nothing else."""

  mesh: Mesh
  model: DecoderConfig
  algorithm: Algorithm
  lora: LoraConfig
  optimizer: OptimizerConfig
  critic_optimizer: OptimizerConfig
  supervised_optimizer: OptimizerConfig
  normalize_constant: float
  supervised_microbatches: int
  microbatches: int
  temperature: float
  chunk: int


def programs(config: RunConfig, mesh: Mesh) -> Programs:
  """The programs of a run; those of the last few configurations are kept.

  A run that goes on in the same process, or is one of many that differ in their seed say,
  then traces nothing that was traced before.

  Args:
    config: of the run.
    mesh: of the devices.

  Returns:
    Its `Programs`.
  """
  supervised = config.supervised
  key = _Key(
    mesh=mesh,
    model=config.model,
    algorithm=config.algorithm,
    lora=config.lora,
    optimizer=config.optimizer,
    critic_optimizer=config.critic.optimizer,
    supervised_optimizer=supervised.optimizer,
    normalize_constant=supervised.normalize_constant,
    supervised_microbatches=supervised.microbatches,
    microbatches=config.microbatches,
    temperature=config.sampling.temperature,
    chunk=config.logit_chunk,
  )
  try:
    hash(key)
  except TypeError:  # an algorithm with a part that has no hash
    return _made(key)
  return _kept(key)


def _made(key: _Key) -> Programs:
  model = Decoder(key.model)
  # Both learners' optimizers are of one kind: the state has one layout in both stages.
  critic_optimizer = make_optimizer(key.critic_optimizer)
  learner, supervised_learner = (
    Learner(model, key.algorithm, make_optimizer(x), critic_optimizer, key.lora)
    for x in (key.optimizer, key.supervised_optimizer)
  )
  abstract = abstract_state(learner, mesh=key.mesh)
  shardings = shardings_of(abstract)
  make_step = functools.partial(
    make_train_step,
    learner,
    microbatches=key.microbatches,
    temperature=key.temperature,
    chunk=key.chunk,
    shardings=shardings,
  )
  critic = key.algorithm.critic
  return Programs(
    learner=learner,
    supervised_learner=supervised_learner,
    abstract=abstract,
    shardings=shardings,
    supervised_step=make_supervised_step(
      supervised_learner,
      normalize_constant=key.normalize_constant,
      microbatches=key.supervised_microbatches,
      chunk=key.chunk,
      shardings=shardings,
    ),
    train_step=make_step(),
    value_step=make_step(learn_policy=False) if critic and critic.pretraining else None,
  )


_kept = functools.lru_cache(maxsize=2)(_made)
