"""A policy's run: its configuration taken apart, and its stages put together."""

import functools
import hashlib
import math
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
from transformers import PreTrainedTokenizerFast

from pgax.data.completions import read_completions
from pgax.data.pipeline import batches
from pgax.data.task import fingerprint
from pgax.distributed.mesh import make_mesh
from pgax.distributed.partitioning import batch_sharding, param_shardings, shardings_of
from pgax.distributed.placement import held_rows
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
from pgax.rollout.lagged import Lagged
from pgax.rollout.metrics import Stopwatch
from pgax.rollout.reward_model import RewardModel, load_reward_model
from pgax.rollout.rollouts import Rollouts
from pgax.rollout.sampler import make_sampler
from pgax.rollout.source import Batches, CheckedIterator, Source
from pgax.rollout.stored import Stored
from pgax.runs.checkpoint import Checkpoints
from pgax.runs.loggers import SUPERVISED
from pgax.training.batches import (
  batch_iterators,
  prompt_collator,
  prompts_computed,
  prompts_multiple,
)
from pgax.training.config import RunConfig
from pgax.training.health import check_lag
from pgax.training.loop import Schedule, Stage, Stop
from pgax.training.policy import eos_ids, is_reward_model, load_critic, load_params
from pgax.training.progress import Progress
from pgax.training.speed import run_speed
from pgax.training.stages import PolicyEvaluation, RolloutMeasures
from pgax.types import DemonstrationRows, PyTree

# A supervised step is short, so its checkpoints are further apart.
_SUPERVISED_STEPS_PER_STEP = 10
_REINFORCEMENT = "reinforcement"


def _demonstrations(rows: DemonstrationRows) -> dict[str, DemonstrationRows]:
  """Returns the arguments of a supervised step after the state, by their names."""
  return {"rows": rows}


class PolicyRun:
  """A run of a policy, as the driver needs it; see `driver.Run`.

  Args:
    config: configuration of the run.
    tokenizer: tokenizer of the model.
    runner: runs the reward function; open for as long as the run is used.
    counts: numbers of problems, logged with the first evaluation.
  """

  checkpoints: Checkpoints  # set once the folder is open

  def __init__(
    self,
    config: RunConfig,
    tokenizer: PreTrainedTokenizerFast,
    runner: RewardRunner,
    counts: Mapping[str, int] = types.MappingProxyType({}),
  ):
    self.runner, self.counts, self.max_skipped = runner, counts, config.max_skipped
    self.config, self.tokenizer = config, tokenizer
    self.mesh, self.model = make_mesh(config.mesh), Decoder(config.model)
    self.steps = compiled_steps(config.step_config, self.mesh)
    self.abstract = self.steps.abstract
    # Adapters are small; what they change is not, and it never changes.
    self.frozen = ("base",) if config.lora.rank else ()
    self.collate = prompt_collator(
      config.data, tokenizer, config.sampling.max_prompt_tokens
    )
    self.problems = fingerprint(config.task.train)
    self.sampler = make_sampler(
      config.sampling,
      self.model,
      tokenizer,
      self.mesh,
      eos_ids(config.model_path, tokenizer),
      record_experts=config.learner.needs_experts,
    )
    self.sources = self._sources()
    self.clock = Stopwatch()

  def _sources(self) -> dict[str, Source]:
    """Builds the sources of both stages."""
    config, sharding = self.config, batch_sharding(self.mesh)
    held = functools.partial(held_rows, sharding)
    iterators = batch_iterators(config, self.collate, held)
    if config.data.completions:
      return {
        "supervised": Batches(iterators["supervised"], sharding, _demonstrations),
        _REINFORCEMENT: self._stored(sharding),
      }
    rollouts = Rollouts(
      sampler=self.sampler,
      runner=self.runner,
      prompts=iterators[_REINFORCEMENT],
      sampling=config.sampling,
      scoring=config.scoring,
      dynamic_sampling=config.trained_algorithm.dynamic_sampling,
      greedy_baseline=config.trained_algorithm.greedy_baseline,
      step_reward=config.step_reward,
      components=config.trained_algorithm.components,
      multiple=prompts_multiple(config, self.mesh),
      reward_model=self._load_reward_model(),
      lora=config.lora,
    )
    return {
      "supervised": Batches(iterators["supervised"], sharding, _demonstrations),
      _REINFORCEMENT: self._lagged(rollouts) if config.sampling.lag else rollouts,
    }

  def _stored(self, sharding: jax.sharding.Sharding) -> Stored:
    sampling, data = self.config.sampling, self.config.data
    groups = read_completions(data.completions, sampling.group_size)
    content = Path(data.completions).read_bytes()
    digest = hashlib.blake2b(content, digest_size=8).hexdigest()
    self.problems = {**self.problems, "completions": digest}
    shuffled = batches(groups, list, sampling.prompts_per_step, 2 * self.config.seed + 1)
    return Stored(
      CheckedIterator(shuffled),
      sampling.max_prompt_tokens,
      sampling.max_completion_tokens,
      sharding,
    )

  def _lagged(self, rollouts: Rollouts) -> Lagged:
    config = self.config
    check_lag(config.sampling.lag, config.trained_algorithm)
    # One program for all completions, on devices that no other process has to follow.
    chunks, dynamic = (
      config.scoring.pipeline_chunks,
      config.trained_algorithm.dynamic_sampling,
    )
    overlap = chunks == 1 and dynamic is None and jax.process_count() == 1
    return Lagged(rollouts, config.sampling.lag, config.steps, overlap)

  def _load_reward_model(self) -> RewardModel | None:
    config = self.config
    # No more prompts at a time than in a step that is not sampled in chunks.
    prompts = prompts_computed(config, self.mesh) // config.scoring.pipeline_chunks
    microbatches = math.gcd(config.learner.microbatches, prompts)
    return load_reward_model(
      config.reward_model, self.mesh, config.model.dtype, microbatches
    )

  def start(self, params: PyTree | None = None) -> TrainState:
    """Returns the state of a new run.

    Args:
      params: parameters that the policy starts from; None starts as the configuration says.
    """
    config = self.config
    state = init_state(self.steps.supervised_learner, self.mesh, config.seed)
    if params is None and config.model_path:
      shardings = param_shardings(self.model, self.mesh)
      params = hf.load_params(Path(config.model_path), config.model, shardings)
    elif params is None and config.init_from_run:
      params = load_params(self.model, self.mesh, Path(config.init_from_run))
    if params is not None:
      state = with_policy(state, self.steps.learner, params)
    return state if config.supervised.steps else self.begin_reinforcement(state)

  def data(self, state: TrainState) -> dict[str, Any]:
    """Returns the progress of a state, the time so far, and a digest of the problems."""
    seconds = {"seconds": self.clock.seconds, "problems": self.problems}
    return seconds | Progress.of(state).to_json()

  def resume(self, data: Mapping[str, Any]) -> None:
    """Checks the problems, of which a saved position is an index, and sets the clock."""
    if (saved := data["problems"]) != self.problems:
      raise UserError(
        "the training problems are not those that the run began with: there are "
        f"{self.problems['size']} and there were {saved['size']}, or their texts differ. "
        "Give the same files to continue, or another workdir"
      )
    self.clock = Stopwatch(data["seconds"])

  def last_steps(self, state: TrainState) -> dict[str, int]:
    """Returns the last step of each logged stage that is not done again."""
    return Progress.of(state).last_steps

  def stages(self, state: TrainState) -> Iterator[Stage]:
    """Yields supervised training, unless it is done, and reinforcement."""
    if Progress.of(state).is_supervised:
      yield self.supervised()
    yield self.reinforcement()

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

  def evaluate(self, state: TrainState, stop: Stop = None) -> Evaluation:
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

  def supervised(self) -> Stage:
    """Returns the supervised stage."""
    stage = self.config.supervised
    schedule = Schedule(
      steps=stage.steps,
      eval_every=stage.eval_every,
      eval_first=bool(stage.eval_every),
      eval_last=False,
      checkpoint_every=self.config.checkpoints.every * _SUPERVISED_STEPS_PER_STEP,
    )
    return Stage(
      name="supervised",
      schedule=schedule,
      source=self.sources["supervised"],
      update=lambda _: self.steps.supervised_step,
      evaluate=PolicyEvaluation(self.evaluate, with_samples=False),
      finish=self.begin_reinforcement,
      prefix=SUPERVISED,
    )

  def reinforcement(self) -> Stage:
    """Returns the reinforcement stage."""
    config, critic = self.config, self.config.trained_algorithm.critic
    schedule = Schedule(
      steps=config.steps,
      eval_every=config.evaluation.every,
      eval_first=True,
      eval_last=True,
      checkpoint_every=config.checkpoints.every,
      samples_every=config.samples_every,
    )
    pretraining = critic.pretraining_steps if critic else 0
    steps = self.steps
    measures = RolloutMeasures(run_speed(config), self.clock, self.tokenizer)
    return Stage(
      name=config.name,
      schedule=schedule,
      source=self.sources[_REINFORCEMENT],
      update=lambda n: steps.critic_step if n < pretraining else steps.policy_step,
      evaluate=PolicyEvaluation(self.evaluate, self.counts),
      measure=measures.metrics,
      samples=measures.samples,
      shown=(("accuracy", "eval/accuracy", ".1%"), ("reward", "reward/mean", ".2f")),
    )
