"""One step of each stage of a run, with everything that stays the same between steps."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
from transformers import PreTrainedTokenizerFast

from pgax.data.pipeline import batches
from pgax.data.prompts import CollateDemonstrations, CollatePrompts
from pgax.models.decoder import Decoder
from pgax.models.partitioning import batch_sharding
from pgax.training.checkpoint import Checkpoints
from pgax.training.config import RunConfig
from pgax.training.errors import UserError
from pgax.training.evaluation import Evaluation, evaluate
from pgax.training.health import check_finite
from pgax.training.mesh import make_mesh
from pgax.training.records import Sample, make_samples
from pgax.training.rollout import Sampler, Stopwatch, rollout_metrics, score
from pgax.training.state import (
  TrainState,
  abstract_state,
  begin_reinforcement,
  init_state,
  make_optimizer,
  shardings_of,
  step_keys,
)
from pgax.training.step import make_imitation_step, make_train_step


class Run:
  """What stays the same from step to step; the state is passed from call to call.

  Args:
    config: the run.
    tokenizer: of the model.
    workdir: folder of the run, open already (see `training.workdir`).
  """

  def __init__(self, config: RunConfig, tokenizer: PreTrainedTokenizerFast, workdir: Path):
    self.config, self.tokenizer = config, tokenizer
    self.mesh = make_mesh(config.mesh.fsdp, config.mesh.model)
    self.model = Decoder(config.model)
    sampling = config.sampling
    self.collate = CollatePrompts(tokenizer, sampling.max_prompt_tokens)
    demonstrations = CollateDemonstrations(self.collate, sampling.max_tokens)
    self.sampler = Sampler(self.model, tokenizer, self.mesh, sampling.max_tokens)
    self.warm_optimizer = make_optimizer(config.warm_start.optimizer)
    self.optimizer = make_optimizer(config.optimizer)
    # Both optimizers are of one kind, so this is the state's layout in both stages.
    self.abstract = abstract_state(self.model, config.algorithm, self.optimizer, self.mesh)
    self.shardings = shardings_of(self.abstract)
    self.imitation_step = make_imitation_step(
      self.model, self.warm_optimizer, shardings=self.shardings
    )
    self.train_step = make_train_step(
      self.model,
      config.algorithm,
      self.optimizer,
      microbatches=config.microbatches,
      temperature=sampling.temperature,
      shardings=self.shardings,
    )
    train, warm = config.task.train, config.warm_start
    # Each stage has its own data iterator, and its own shuffle.
    self.iterators = {
      "warm_start": batches(train, demonstrations, warm.batch_size, 2 * config.seed),
      "reinforce": batches(train, self.collate, sampling.prompts, 2 * config.seed + 1),
    }
    self.checkpoints = Checkpoints(workdir, config.keep_checkpoints)

  def start(self) -> TrainState:
    """The state to go on from: of the last checkpoint, or fresh."""
    if self.checkpoints.latest() is not None:
      state, positions = self.checkpoints.restore(self.abstract)
      for name, iterator in self.iterators.items():
        iterator.set_state(positions[name])
      return state
    config = self.config
    first = self.warm_optimizer if config.warm_start.steps else self.optimizer
    return init_state(self.model, config.algorithm, first, self.mesh, config.seed)

  def save(self, state: TrainState) -> None:
    """Writes a checkpoint."""
    positions = {name: it.get_state() for name, it in self.iterators.items()}
    self.checkpoints.save(state, positions)

  def _next(self, stage: str) -> Any:
    try:
      return next(self.iterators[stage])
    except ValueError as error:  # a problem over the limit, among too many to check before
      raise UserError(str(error)) from error

  def imitate(self, state: TrainState) -> tuple[TrainState, dict[str, float]]:
    """One step of the warm start; the last one makes the policy its own reference."""
    batch = self._next("warm_start")
    arrays = (batch.prompts.tokens, batch.prompts.mask, batch.tokens, batch.mask)
    arrays = jax.device_put(arrays, batch_sharding(self.mesh))
    state, told = self.imitation_step(state, *arrays)
    metrics = {name: float(value) for name, value in told.items()}
    step = int(state.step)
    check_finite(step, metrics)
    if step == self.config.warm_start.steps:
      state = begin_reinforcement(state, self.optimizer, self.shardings)
    return state, metrics

  def reinforce(
    self, state: TrainState, log: Callable[[list[Sample]], None] | None
  ) -> tuple[TrainState, dict[str, float]]:
    """One step of reinforcement; `log` is given some completions, if it is given."""
    watch = Stopwatch()
    prompts = self._next("reinforce")
    key, _ = step_keys(state.key, state.step)
    sampling = self.config.sampling
    rollout = self.sampler(state.params, prompts, key, sampling.temperature, sampling.group)
    times = {"time/rollout": watch.lap(rollout)}
    scores = score(self.config.reward, self.tokenizer, prompts, rollout)
    times["time/reward"] = watch.lap()
    rewards = jax.device_put((scores.rewards, scores.valid), batch_sharding(self.mesh))
    state, update = self.train_step(state, rollout, *rewards)
    times["time/train"] = watch.lap(state, update)
    metrics = {name: float(value) for name, value in update.metrics.items()}
    check_finite(int(state.step) - self.config.warm_start.steps, metrics)
    if log:
      log(make_samples(self.tokenizer, prompts, rollout, scores, update.advantages))
    return state, rollout_metrics(rollout, scores) | metrics | times

  def evaluate(self, state: TrainState) -> Evaluation:
    """Greedy accuracy on the first held-out problems."""
    count = min(self.config.eval_problems, len(self.config.task.held_out))
    problems = [self.config.task.held_out[i] for i in range(count)]
    # As many at a time as a rollout has completions: the same memory.
    size = self.config.sampling.prompts * self.config.sampling.group
    return evaluate(
      self.sampler, state.params, problems, self.collate, self.config.reward, size
    )
