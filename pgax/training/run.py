"""One step of each stage of a run, with everything that stays the same between steps."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
from transformers import PreTrainedTokenizerFast

from pgax.data.pipeline import batches
from pgax.data.task import fingerprint
from pgax.models import hf, lora
from pgax.models.decoder import Decoder
from pgax.models.partitioning import batch_sharding, param_shardings
from pgax.rewards.pool import RewardRunner as Scorer
from pgax.training.checkpoint import Checkpoints
from pgax.training.collect import Collector
from pgax.training.config import RunConfig
from pgax.training.errors import UserError
from pgax.training.evaluation import Evaluation, evaluate, evaluation_key
from pgax.training.health import check_finite, check_sampler
from pgax.training.mesh import make_mesh
from pgax.training.policy import end_ids, load_params
from pgax.training.problems import demonstration_batches, prompt_collator
from pgax.training.programs import programs
from pgax.training.records import Sample, make_samples
from pgax.training.reward_model import load_reward_model
from pgax.training.rollout import Stopwatch
from pgax.training.sampler import make_sampler
from pgax.training.state import (
  TrainState,
  begin_reinforcement,
  init_state,
  start_from,
  step_keys,
)
from pgax.types import PyTree


class Run:
  """What stays the same from step to step; the state is passed from call to call.

  Args:
    config: the run.
    tokenizer: of the model.
    workdir: folder of the run, open already (see `training.workdir`).
    scorer: applies the reward function; open as long as the run is used.
  """

  def __init__(
    self,
    config: RunConfig,
    tokenizer: PreTrainedTokenizerFast,
    workdir: Path,
    scorer: Scorer,
  ):
    self.config, self.tokenizer = config, tokenizer
    self.mesh = make_mesh(config.mesh.fsdp, config.mesh.model)
    self.model = Decoder(config.model)
    sampling = config.sampling
    self.collate = prompt_collator(config, tokenizer)
    self.sampler = make_sampler(
      sampling, self.model, tokenizer, self.mesh, end_ids(config, tokenizer)
    )
    made = programs(config, self.mesh)
    self.learner, self.supervised_learner = made.learner, made.supervised_learner
    self.abstract, self.shardings = made.abstract, made.shardings
    self.supervised_step = made.supervised_step
    self.train_step, self.value_step = made.train_step, made.value_step
    critic = config.algorithm.critic
    self.pretraining = critic.pretraining if critic else 0
    train = config.task.train
    # Each stage has its own data iterator, and its own shuffle.
    self.iterators = {
      "supervised": demonstration_batches(config, self.collate),
      "reinforce": batches(train, self.collate, sampling.prompts, 2 * config.seed + 1),
    }
    self.problems = fingerprint(train)
    self.scorer = scorer
    self.collector = Collector(
      config,
      self.sampler,
      scorer,
      lambda: self._next("reinforce"),
      load_reward_model(config, self.mesh),
    )
    self.checkpoints = Checkpoints(workdir, config.keep_checkpoints)

  def start(self) -> TrainState:
    """The state to go on from: of the last checkpoint, or fresh."""
    if self.checkpoints.latest() is not None:
      state, positions = self.checkpoints.restore(self.abstract)
      self._check_problems(positions["problems"])
      for name, iterator in self.iterators.items():
        iterator.set_state(positions[name])
      return state
    config = self.config
    state = init_state(self.supervised_learner, self.mesh, config.seed)
    if config.model_path:
      places = param_shardings(self.model, self.mesh)
      params = hf.load_params(Path(config.model_path), config.model, places)
      state = start_from(state, self.learner, params)
    if config.policy_from:
      params, _ = load_params(self.model, self.mesh, Path(config.policy_from))
      state = start_from(state, self.learner, params)
    return state if config.supervised.steps else self._begin(state)

  def policy(self, state: TrainState) -> PyTree:
    """Parameters of the decoder, adapters merged."""
    return lora.apply(self.config.lora, state.base, state.params)

  def _begin(self, state: TrainState) -> TrainState:
    """The state that reinforcement starts from."""
    start = self.config.critic.start
    critic_from = None
    if self.learner.critic and start == "policy":
      critic_from = self.policy(state)
    elif self.learner.critic and start != "fresh":
      critic_from, _ = load_params(self.model, self.mesh, Path(start))
    return begin_reinforcement(state, self.learner, self.shardings, critic_from)

  def save(self, state: TrainState) -> None:
    """Writes a checkpoint."""
    positions = {name: it.get_state() for name, it in self.iterators.items()}
    self.checkpoints.save(state, positions | {"problems": self.problems})

  def _check_problems(self, saved: dict[str, int | str]) -> None:
    """A position means something in the list of problems that it was taken in only."""
    if saved != self.problems:
      raise UserError(
        f"the training problems are not those that the run began with: there are "
        f"{self.problems['size']} and there were {saved['size']}, or their texts differ. "
        "Give it the same files to go on, or another workdir"
      )

  def _next(self, stage: str) -> Any:
    try:
      return next(self.iterators[stage])
    except ValueError as error:  # a problem over the limit, among too many to check before
      raise UserError(str(error)) from error

  def supervise(self, state: TrainState) -> tuple[TrainState, dict[str, float]]:
    """A step on worked solutions; the last one makes the policy its own reference."""
    rows = jax.device_put(self._next("supervised"), batch_sharding(self.mesh))
    watch = Stopwatch()
    state, told = self.supervised_step(state, rows)
    metrics = {"time/train": watch.lap(state)}
    metrics |= {name: value.item() for name, value in told.items()}
    step = int(state.step)
    check_finite(step, metrics)
    if step == self.config.supervised.steps:
      state = self._begin(state)
    return state, metrics

  def reinforce(
    self, state: TrainState, log: Callable[[list[Sample]], None] | None
  ) -> tuple[TrainState, dict[str, float]]:
    """One step of reinforcement; `log` is given some completions, if it is given."""
    begun = time.process_time()
    step = int(state.step) - self.config.supervised.steps  # done so far
    key, _ = step_keys(state.key, state.step)
    experience, feedback, metrics = self.collector(self.policy(state), key)
    watch = Stopwatch()
    train_step = self.value_step if step < self.pretraining else self.train_step
    state, update = train_step(state, experience.rollout, feedback)
    metrics["time/train"] = watch.lap(state, update)
    metrics["time/cpu"] = time.process_time() - begun
    metrics |= {name: float(value) for name, value in update.metrics.items()}
    check_finite(step + 1, metrics)
    check_sampler(metrics)
    if log:
      e = experience
      log(make_samples(self.tokenizer, e.prompts, e.rollout, e.scores, update.advantages))
    return state, metrics

  def evaluate(self, state: TrainState) -> Evaluation:
    """Measures the policy on the first held-out problems, each time with the same draws."""
    config = self.config
    count = min(config.eval_problems, len(config.task.held_out))
    return evaluate(
      self.sampler,
      self.policy(state),
      [config.task.held_out[i] for i in range(count)],
      self.collate,
      self.scorer,
      # As many at a time as a rollout has completions: the same memory.
      config.sampling.prompts * config.sampling.group,
      evaluation_key(config.seed),
      samples=config.eval_samples,
      temperature=config.eval_temperature,
      answer=config.answer,
    )
