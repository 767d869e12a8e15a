"""A run: its configuration taken apart, and its stages put together."""

import functools
import math
from collections.abc import Callable, Mapping
from pathlib import Path

import jax
from transformers import PreTrainedTokenizerFast

from pgax.data.task import fingerprint
from pgax.distributed.mesh import make_mesh
from pgax.distributed.partitioning import batch_sharding, param_shardings, shardings_of
from pgax.distributed.rows import held_rows
from pgax.errors import UserError
from pgax.evaluation import Evaluation, evaluate, evaluation_key
from pgax.learner.compiled import compiled_steps
from pgax.learner.state import (
  TrainState,
  begin_reinforcement,
  init_state,
  with_critic,
  with_policy,
)
from pgax.models import hf, lora
from pgax.models.decoder import Decoder
from pgax.rewards.pool import RewardRunner
from pgax.rollout.actor import Actor
from pgax.rollout.reward_model import RewardModel, load_reward_model
from pgax.rollout.sampler import make_sampler
from pgax.runs.checkpoint import Checkpoints
from pgax.training.ahead import Ahead, LaggedState, LockedRunner
from pgax.training.batches import (
  batch_iterators,
  next_of,
  prompt_collator,
  prompts_computed,
  prompts_multiple,
)
from pgax.training.config import RunConfig
from pgax.training.health import check_lag
from pgax.training.loop import Schedule
from pgax.training.policy import eos_ids, is_reward_model, load_critic, load_params
from pgax.training.progress import Progress
from pgax.training.speed import Clock, run_speed
from pgax.training.stages import Reinforcement, Supervised, on_devices
from pgax.types import PyTree

# A supervised step is short, so its checkpoints are further apart.
_SUPERVISED_STEPS_PER_STEP = 10


class Run:
  """Everything that stays the same from step to step; the state is passed on.

  Args:
    config: configuration of the run.
    tokenizer: tokenizer of the model.
    workdir: folder of the run, already open (see `runs.workdir`).
    runner: runs the reward function; open for as long as the run is used.
  """

  def __init__(
    self,
    config: RunConfig,
    tokenizer: PreTrainedTokenizerFast,
    workdir: Path,
    runner: RewardRunner,
  ):
    # Evaluations score while rollouts that are ahead are scored in another thread.
    self.runner = LockedRunner(runner) if config.sampling.lag else runner
    self.config, self.tokenizer = config, tokenizer
    self.mesh, self.model = make_mesh(config.mesh), Decoder(config.model)
    self.steps = compiled_steps(config.step_config, self.mesh)
    self.collate = prompt_collator(
      config.data, tokenizer, config.sampling.max_prompt_tokens
    )
    held = functools.partial(held_rows, batch_sharding(self.mesh))
    self.iterators = batch_iterators(config, self.collate, held)
    self.problems = fingerprint(config.task.train)
    ids = eos_ids(config.model_path, tokenizer)
    self.sampler = make_sampler(
      config.sampling,
      self.model,
      tokenizer,
      self.mesh,
      ids,
      record_experts=config.learner.needs_experts,
    )
    self.reward_model = self._load_reward_model()
    self.checkpoints = Checkpoints(workdir, config.checkpoints.keep)
    self.clock = Clock()
    self.actor = self._actor()
    self.ahead = self._ahead()

  def close(self) -> None:
    """Releases the folder, and ends threads."""
    if self.ahead:
      self.ahead.close()
    self.checkpoints.close()

  def _load_reward_model(self) -> RewardModel | None:
    config = self.config
    # No more prompts at a time than in a step that is not sampled in chunks.
    prompts = prompts_computed(config, self.mesh) // config.scoring.pipeline_chunks
    microbatches = math.gcd(config.learner.microbatches, prompts)
    return load_reward_model(
      config.reward_model, self.mesh, config.model.dtype, microbatches
    )

  def start(self) -> TrainState:
    """Returns the state to start from: that of the latest checkpoint, or a fresh one."""
    if self.checkpoints.latest() is not None:
      return self._resume()
    config = self.config
    state = init_state(self.steps.supervised_learner, self.mesh, config.seed)
    if config.model_path:
      shardings = param_shardings(self.model, self.mesh)
      params = hf.load_params(Path(config.model_path), config.model, shardings)
      state = with_policy(state, self.steps.learner, params)
    if config.init_from_run:
      params = load_params(self.model, self.mesh, Path(config.init_from_run))
      state = with_policy(state, self.steps.learner, params)
    return state if config.supervised.steps else self.begin_reinforcement(state)

  def _resume(self) -> TrainState:
    like, lag = self.steps.abstract, self.config.sampling.lag
    done = Progress.from_json(self.checkpoints.restore_data())
    in_flight = lag if done.step and not done.is_supervised else 0
    if in_flight:
      like = LaggedState.of(like, [like.params] * lag)
    state, data = self.checkpoints.restore(like)
    if in_flight:
      self.ahead.restore(done.step, state.behind)
      state = state.present
    self._check_problems(data["problems"])
    self.clock = Clock(data.get("seconds", 0.0))
    for name, iterator in self.iterators.items():
      iterator.set_state(data[name])
    return state

  def _check_problems(self, saved: Mapping[str, int | str]) -> None:
    """A saved position is an index into the problems that the run began with."""
    if saved != self.problems:
      raise UserError(
        "the training problems are not those that the run began with: there are "
        f"{self.problems['size']} and there were {saved['size']}, or their texts differ. "
        "Give the same files to continue, or another workdir"
      )

  def save(self, state: TrainState) -> None:
    """Saves a checkpoint, which is written while the run goes on."""
    data = {name: iterator.get_state() for name, iterator in self.iterators.items()}
    if self.ahead and not Progress.of(state).is_supervised:
      behind, data["reinforcement"] = self.ahead.in_flight(state)
      state = LaggedState.of(state, behind) if behind else state
    data |= {"problems": self.problems, "seconds": self.clock.seconds}
    data |= Progress.of(state).to_json()
    # Adapters are small; what they change is not, and it never changes.
    frozen = ("base",) if self.config.lora.rank else ()
    self.checkpoints.save(int(state.total_steps), state, data, frozen, wait=False)

  def policy(self, state: TrainState) -> PyTree:
    """Returns the policy's parameters, adapters merged."""
    return lora.merged(self.config.lora, state.base, state.params)

  def begin_reinforcement(self, state: TrainState) -> TrainState:
    """Returns the state that reinforcement begins with."""
    start, learner = self.config.critic.start, self.steps.learner
    critic_from = None
    if learner.critic and start == "policy":
      critic_from = self.policy(state)
    elif learner.critic and start != "fresh":
      folder = Path(start)
      if is_reward_model(folder):
        state = with_critic(state, load_critic(self.config.model, self.mesh, folder))
      else:
        critic_from = load_params(self.model, self.mesh, folder)
    shardings = shardings_of(self.steps.abstract)
    return begin_reinforcement(state, learner, shardings, critic_from)

  def evaluate(
    self, state: TrainState, stop: Callable[[], bool] | None = None
  ) -> Evaluation:
    """Evaluates the policy on the first held-out problems, unless `stop` stops it."""
    config, settings = self.config, self.config.evaluation
    count = min(settings.problems, len(config.task.held_out))
    return evaluate(
      self.sampler,
      self.policy(state),
      [config.task.held_out[i] for i in range(count)],
      self.collate,
      self.runner,
      # As many at a time as a rollout has completions, so that memory suffices.
      config.sampling.completions_per_step,
      evaluation_key(config.seed),
      samples=settings.samples,
      temperature=settings.temperature,
      extract_answer=settings.extract_answer,
      stop=stop,
    )

  def supervised(self) -> Supervised:
    """Returns the supervised stage."""
    stage = self.config.supervised
    schedule = Schedule(
      steps=stage.steps,
      eval_every=stage.eval_every,
      eval_first=bool(stage.eval_every),
      eval_last=False,
      checkpoint_every=self.config.checkpoints.every * _SUPERVISED_STEPS_PER_STEP,
    )
    return Supervised(
      schedule=schedule,
      next_rows=on_devices(next_of(self.iterators["supervised"]), self.mesh),
      train_step=self.steps.supervised_step,
      evaluator=self.evaluate,
      begin_next=self.begin_reinforcement,
    )

  def reinforcement(self, counts: Mapping[str, int]) -> Reinforcement:
    """Returns the reinforcement stage.

    Args:
      counts: numbers of problems, logged with the first evaluation.
    """
    config = self.config
    schedule = Schedule(
      steps=config.steps,
      eval_every=config.evaluation.every,
      eval_first=True,
      eval_last=True,
      checkpoint_every=config.checkpoints.every,
      samples_every=config.samples_every,
    )
    critic = config.trained_algorithm.critic
    return Reinforcement(
      name=config.name,
      schedule=schedule,
      actor=self.actor,
      prompts=self.iterators["reinforcement"],
      policy_step=self.steps.policy_step,
      critic_step=self.steps.critic_step,
      pretraining_steps=critic.pretraining_steps if critic else 0,
      policy=self.policy,
      evaluator=self.evaluate,
      tokenizer=self.tokenizer,
      counts=counts,
      speed=run_speed(config),
      clock=self.clock,
      ahead=self.ahead,
    )

  def _ahead(self) -> Ahead | None:
    config = self.config
    if not config.sampling.lag:
      return None
    check_lag(config.sampling.lag, config.trained_algorithm)
    # One program for all completions, on devices that no other process has to follow.
    chunks = config.scoring.pipeline_chunks
    dynamic = config.trained_algorithm.dynamic_sampling
    overlap = chunks == 1 and dynamic is None and jax.process_count() == 1
    prompts = self.iterators["reinforcement"]
    return Ahead(self.actor, prompts, self.policy, config.sampling.lag, overlap)

  def _actor(self) -> Actor:
    config = self.config
    return Actor(
      sampler=self.sampler,
      runner=self.runner,
      next_prompts=next_of(self.iterators["reinforcement"]),
      sampling=config.sampling,
      scoring=config.scoring,
      dynamic_sampling=config.trained_algorithm.dynamic_sampling,
      greedy_baseline=config.trained_algorithm.greedy_baseline,
      step_reward=config.step_reward,
      components=config.trained_algorithm.components,
      multiple=prompts_multiple(config, self.mesh),
      reward_model=self.reward_model,
    )
