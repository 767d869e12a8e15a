"""The stages of training: supervised, reinforcement and preferences."""

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import grain
import jax
import numpy as np
from transformers import PreTrainedTokenizerFast

from pgax.data.preferences import CollatePreferences, Preference, PreferenceBatch
from pgax.distributed.partitioning import batch_sharding
from pgax.distributed.rows import fetch, put
from pgax.evaluation import Evaluation, evaluation_metrics
from pgax.learner.preference_step import RewardModelState, margins
from pgax.learner.state import TrainState, step_keys
from pgax.models import ScalarDecoder
from pgax.rollout.actor import Actor
from pgax.rollout.experience import Experience
from pgax.rollout.metrics import Stopwatch
from pgax.rollout.samples import Sample, make_samples
from pgax.runs.interrupt import StoppedError, check_stop
from pgax.runs.loggers import SUPERVISED
from pgax.training.ahead import Ahead
from pgax.training.health import check_sampler
from pgax.training.loop import Metrics, Rows, Schedule, StepResult
from pgax.training.speed import Clock, Speed
from pgax.types import Array, DemonstrationRows, PyTree

Stop = Callable[[], bool] | None
_ACCURACY = ("accuracy", "eval/accuracy", ".1%")


@dataclasses.dataclass(frozen=True)
class Supervised:
  """Supervised training on worked solutions.

  Attributes:
    schedule: what happens at each step.
    next_rows: returns the next batch, on the devices.
    train_step: jitted supervised step.
    evaluator: evaluates the policy of a state.
    begin_next: returns the state that reinforcement begins with.
  """

  schedule: Schedule
  next_rows: Callable[[], DemonstrationRows]
  train_step: Callable
  evaluator: Callable[[TrainState, Stop], Evaluation]
  begin_next: Callable[[TrainState], TrainState]
  name: str = "supervised"
  prefix: str = SUPERVISED
  shown: Sequence[tuple[str, str, str]] = (_ACCURACY, ("loss", "loss", ".3f"))

  def step(self, state: TrainState, with_samples: bool, stop: Stop = None) -> StepResult:
    """Trains on a batch of worked solutions; there are no completions."""
    del with_samples, stop
    rows, watch = self.next_rows(), Stopwatch()
    state, scalars = self.train_step(state, rows)
    metrics = {"time/train": watch.lap(state)}
    metrics |= {name: value.item() for name, value in scalars.items()}
    return StepResult(state, metrics, (), rows)

  def evaluate(self, state: TrainState, stop: Stop = None) -> tuple[Metrics, Rows]:
    """Evaluates the policy on held-out problems."""
    return evaluation_metrics(self.evaluator(state, stop)), ()

  def finish(self, state: TrainState) -> TrainState:
    """Makes the policy the reference of reinforcement."""
    return self.begin_next(state)


@dataclasses.dataclass(frozen=True)
class Reinforcement:
  """Policy-gradient training.

  Attributes:
    name: name in the progress bar.
    schedule: what happens at each step.
    actor: collects experience.
    prompts: iterator that the actor takes its prompts from.
    policy_step: jitted policy step.
    critic_step: jitted step that trains the critic alone; None without pretraining.
    pretraining_steps: number of steps at the start that train the critic alone.
    policy: returns the policy's parameters of a state, adapters merged.
    evaluator: evaluates the policy of a state.
    tokenizer: tokenizer of the model.
    counts: numbers of problems, logged with the first evaluation.
    speed: computes how fast a step was.
    clock: measures the time of the run.
    ahead: draws rollouts ahead of their step; None without a lag.
  """

  name: str
  schedule: Schedule
  actor: Actor
  prompts: grain.DatasetIterator
  policy_step: Callable
  critic_step: Callable | None
  pretraining_steps: int
  policy: Callable[[TrainState], PyTree]
  evaluator: Callable[[TrainState, Stop], Evaluation]
  tokenizer: PreTrainedTokenizerFast
  counts: Mapping[str, int]
  speed: Speed
  clock: Clock
  ahead: Ahead | None = None
  prefix: str = ""
  shown: Sequence[tuple[str, str, str]] = (_ACCURACY, ("reward", "reward/mean", ".2f"))

  def step(self, state: TrainState, with_samples: bool, stop: Stop = None) -> StepResult:
    """Collects experience with the policy and learns from it, unless stopped between."""
    start, done = time.process_time(), int(state.step)
    experience = self._experience(state, stop)
    watch = Stopwatch()
    learn = self.critic_step if done < self.pretraining_steps else self.policy_step
    state, update = learn(state, experience.rollout, experience.feedback)
    metrics = dict(experience.metrics) | {"time/train": watch.lap(state, update)}
    metrics["time/cpu"] = time.process_time() - start
    metrics["time/total"] = self.clock.seconds
    metrics |= self.speed(experience.rollout, metrics)
    metrics |= {name: float(value) for name, value in update.metrics.items()}
    if not metrics.get("rollout/lag"):  # else they differ by the updates between them
      check_sampler(metrics)
    batch = {
      "rollout": experience.rollout,
      "feedback": experience.feedback,
      "advantages": update.advantages,
    }
    if not with_samples:
      return StepResult(state, metrics, (), batch)
    samples = make_samples(
      self.tokenizer,
      experience.prompts,
      experience.rollout,
      experience.results,
      update.advantages,
    )
    return StepResult(state, metrics, _rows(samples), batch)

  def _experience(self, state: TrainState, stop: Stop) -> Experience:
    """Collects the experience of a step, unless stopped."""
    if self.ahead:
      experience = self.ahead.collect(state, self.schedule.steps)
      check_stop(stop)
      return experience
    key, _ = step_keys(state.key, state.total_steps)
    position = self.prompts.get_state()
    experience = self.actor(self.policy(state), key)
    try:
      check_stop(stop)
    except StoppedError:
      self.prompts.set_state(position)  # the run that continues samples the same again
      raise
    return experience

  def evaluate(self, state: TrainState, stop: Stop = None) -> tuple[Metrics, Rows]:
    """Evaluates the policy on held-out problems, each time with the same random keys."""
    evaluation = self.evaluator(state, stop)
    counts = self.counts if int(state.step) == 0 else {}
    return {**evaluation_metrics(evaluation), **counts}, _rows(evaluation.samples)

  def finish(self, state: TrainState) -> TrainState:
    """Returns the state unchanged: no stage follows."""
    return state


def _rows(samples: Sequence[Sample]) -> list[dict[str, Any]]:
  return [dataclasses.asdict(sample) for sample in samples]


@dataclasses.dataclass(frozen=True)
class PreferenceLearning:
  """Training of a reward model on preference pairs.

  Attributes:
    name: name in the progress bar.
    schedule: what happens at each step.
    model: module of the reward model.
    train_step: jitted preference step.
    next_pairs: returns the next batch of pairs.
    collate: collates pairs.
    held_out: pairs to evaluate with.
    batch_size: number of pairs in a batch of an evaluation.
    sharding: sharding of batches.
  """

  name: str
  schedule: Schedule
  model: ScalarDecoder
  train_step: Callable
  next_pairs: Callable[[], PreferenceBatch]
  collate: CollatePreferences
  held_out: Sequence[Preference]
  batch_size: int
  sharding: jax.sharding.Sharding
  prefix: str = ""
  shown: Sequence[tuple[str, str, str]] = (_ACCURACY, ("loss", "loss", ".3f"))

  def step(
    self, state: RewardModelState, with_samples: bool, stop: Stop = None
  ) -> StepResult:
    """Trains on a batch of pairs; there are no completions."""
    del with_samples, stop
    pairs = self._arrays(self.next_pairs())
    state, scalars = self.train_step(state, *pairs)
    metrics = {name: float(value) for name, value in scalars.items()}
    return StepResult(state, metrics, (), pairs)

  def evaluate(self, state: RewardModelState, stop: Stop = None) -> tuple[Metrics, Rows]:
    """Computes how often the chosen completion of a held-out pair scores higher."""
    count, size, correct = len(self.held_out), self.batch_size, []
    for start in range(0, count, size):
      check_stop(stop)
      # The last batch is filled up with copies, so that there is one shape.
      batch = [self.held_out[min(i, count - 1)] for i in range(start, start + size)]
      arrays = self._arrays(self.collate(batch))
      margin = fetch(margins(self.model, state.params, *arrays))
      correct.append(margin[: count - start] > 0)
    return {"eval/accuracy": float(np.mean(np.concatenate(correct)))}, ()

  def finish(self, state: RewardModelState) -> RewardModelState:
    """Returns the state unchanged: no stage follows."""
    return state

  def _arrays(self, batch: PreferenceBatch) -> tuple[Array, ...]:
    arrays = (batch.prompts.tokens, batch.prompts.mask, batch.tokens, batch.mask)
    return put(arrays, self.sharding)


def on_devices(next_batch: Callable[[], PyTree], mesh: jax.sharding.Mesh) -> Callable:
  """Wraps a function that returns host batches, to put them on the devices.

  Args:
    next_batch: returns the next batch.
    mesh: mesh of devices; batches are sharded over their rows.

  Returns:
    A function that returns the next batch on the devices.
  """
  sharding = batch_sharding(mesh)
  return lambda: put(next_batch(), sharding)
