"""Many training runs as one program: `vmap` over a traceable source and `policy_step`."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from transformers import PreTrainedTokenizerFast

from pgax.algorithms import combine
from pgax.data.prompts import CollatePrompts
from pgax.data.tokenizer import token_bytes
from pgax.distributed.mesh import make_mesh
from pgax.evaluation import evaluation_key, evaluation_means
from pgax.learner import Learner, make_learner, policy_step
from pgax.learner.optimizer import make_optimizer
from pgax.learner.state import TrainState, new_state, reinforcement_state, with_policy
from pgax.learner.supervised_step import supervised_step
from pgax.models import lora
from pgax.models.decoder import Decoder
from pgax.rollout.metrics import rollout_metrics
from pgax.rollout.sampler import make_sampler
from pgax.rollout.traceable import Outcome, Problems, TokenRollouts
from pgax.sampling import prompt_keys
from pgax.study.engine import EVALUATION
from pgax.study.problems import (
  held_out_problems,
  solution_batches,
  training_problems,
)
from pgax.study.program import Numbers, Program
from pgax.study.settings import built, eval_every
from pgax.training.batches import prompt_collator
from pgax.training.config import RunConfig
from pgax.training.policy import eos_ids
from pgax.types import Array, PyTree, Step, TokenReward

_OUTCOME = "outcome"  # name of what the host computes metrics of
_SUPERVISED_STEPS = 50  # whose rows are on the devices at a time


def policy_program(
  run: RunConfig, tokenizer: PreTrainedTokenizerFast, params: PyTree | None = None
) -> Program:
  """Makes the program of a run, which `study.check_run` accepts.

  Args:
    run: configuration of the run; its seed is ignored.
    tokenizer: tokenizer of the model.
    params: parameters that the policy starts from; None initializes them by the seed.

  Returns:
    A `Program`.
  """
  runs = _Runs(built(run), tokenizer, params)
  return Program(
    steps=run.steps,
    start=runs.start,
    step=runs.step,
    data=runs.data,
    evaluate=runs.evaluate,
    eval_every=eval_every(run),
    finish=runs.finish,
  )


class _Runs:
  """The functions of a program, and what all of its runs share."""

  def __init__(
    self, run: RunConfig, tokenizer: PreTrainedTokenizerFast, params: PyTree | None
  ):
    self.run, self.params, self.model = run, params, Decoder(run.model)
    spellings = token_bytes(tokenizer, run.model.vocab_size)
    self.reward: TokenReward = run.task.token_reward(spellings)
    self.collate: CollatePrompts = prompt_collator(
      run.data, tokenizer, run.sampling.max_prompt_tokens
    )
    ids = eos_ids(run.model_path, tokenizer)
    experts = run.learner.needs_experts
    self.sampler = make_sampler(
      run.sampling, self.model, tokenizer, make_mesh(), ids, record_experts=experts
    )
    # The stages before reinforcement, compiled once for all chunks of a study.
    self._initial = jax.jit(jax.vmap(self._initial_run))
    self._train = jax.jit(jax.vmap(self._train_run), donate_argnums=1)
    self._begin = jax.jit(jax.vmap(self._begin_run))
    self._states: dict[Any, TrainState] = {}
    count = min(run.evaluation.problems, len(run.task.held_out))
    held_out = [run.task.held_out[i] for i in range(count)]
    self.held_out = held_out_problems(held_out, self.collate, self.reward)

  def data(self, seeds: Sequence[int]) -> Problems:
    """Draws the problems of all steps."""
    return training_problems(self.run, self.collate, self.reward, seeds)

  def start(self, numbers: Numbers, seeds: Sequence[int]) -> TrainState:
    """Returns the states that reinforcement begins with."""
    supervised = {x: v for x, v in numbers.items() if x.startswith("supervised.")}
    if any(len(set(np.asarray(x).tolist())) > 1 for x in supervised.values()):
      states = self._pretrained(seeds, supervised)
    else:
      states = self._kept(seeds, {x: values[:1] for x, values in supervised.items()})
    return self._begin(dict(numbers), states)

  def _kept(self, seeds: Sequence[int], numbers: Numbers) -> TrainState:
    """States at the end of the supervised stage, computed once for the runs of a seed."""
    key = tuple((x, float(values[0])) for x, values in numbers.items())
    wanted = sorted(set(seeds))
    kept = {x: self._states[key, x] for x in wanted if (key, x) in self._states}
    missing = [x for x in wanted if x not in kept]
    if missing:
      repeated = {x: np.repeat(values, len(missing)) for x, values in numbers.items()}
      states = self._pretrained(missing, repeated)
      kept |= {x: jax.tree.map(lambda y, i=i: y[i], states) for i, x in enumerate(missing)}
    # Runs are ordered by their seeds, so those of other seeds are done.
    self._states = {(key, x): state for x, state in kept.items()}
    return jax.tree.map(lambda *x: jnp.stack(x), *(kept[x] for x in seeds))

  def _begin_run(self, numbers: Numbers, state: TrainState) -> TrainState:
    run, learner = self._learner(numbers)
    from_policy = learner.critic and run.critic.start == "policy"
    policy = self._policy(state) if from_policy else None
    # Stateful parts have numbers of the setting.
    state = state.replace(algorithm_state=learner.algorithm.init())
    return reinforcement_state(learner, state, policy)

  def _initial_run(self, numbers: Numbers, seed: Array) -> TrainState:
    _, learner = self._learner(numbers, supervised=True)
    state = new_state(jax.random.key(seed), learner)
    return state if self.params is None else with_policy(state, learner, self.params)

  def _train_run(self, numbers: Numbers, state: TrainState, rows: PyTree) -> TrainState:
    run, learner = self._learner(numbers, supervised=True)
    options = {
      "normalize_constant": run.supervised.normalize_constant,
      "microbatches": run.supervised.microbatches,
    }

    def step(state: TrainState, rows: PyTree) -> tuple[TrainState, None]:
      return supervised_step(learner, state, rows, **options)[0], None

    return jax.lax.scan(step, state, rows)[0]

  def _pretrained(self, seeds: Sequence[int], numbers: Numbers) -> TrainState:
    """States at the end of the supervised stage, `[seeds]`."""
    numbers = {x: jnp.asarray(values) for x, values in numbers.items()}
    states = self._initial(numbers, jnp.asarray(seeds, jnp.int32))
    for rows in solution_batches(self.run, self.collate, seeds, _SUPERVISED_STEPS):
      states = self._train(numbers, states, rows)
    return states

  def _learner(
    self, numbers: Numbers, supervised: bool = False
  ) -> tuple[RunConfig, Learner]:
    """The configuration with the numbers of a setting, and its learner."""
    run = combine(self.run, numbers)
    learner = make_learner(run.step_config)
    # Mapped over runs, a choice of lengths would compute them all.
    settings = dataclasses.replace(learner.config, length_buckets=1)
    learner = dataclasses.replace(learner, config=settings)
    if supervised:
      optimizer = make_optimizer(run.supervised.optimizer)
      learner = dataclasses.replace(learner, optimizer=optimizer)
    return run, learner

  def _policy(self, state: TrainState) -> PyTree:
    return lora.merged(self.run.lora, state.base, state.params)

  def _source(self, run: RunConfig) -> TokenRollouts:
    """The source of a run, whose numbers may be traced."""
    return TokenRollouts(
      sampler=self.sampler,
      reward=self.reward,
      sampling=run.sampling,
      greedy_baseline=run.algorithm.greedy_baseline,
      components=run.algorithm.components,
      lora=run.lora,
    )

  def step(
    self, numbers: Numbers, state: TrainState, problems: Problems, index: Array
  ) -> tuple[TrainState, dict[str, Any]]:
    """Samples, scores and learns, with the keys of the loop."""
    run, learner = self._learner(numbers)
    step = Step(index, state.total_steps, state.key)
    rollout, feedback, outcome = self._source(run).next(state.policy, step, problems)
    learn = functools.partial(policy_step, learner)
    pretraining = run.algorithm.critic.pretraining_steps if run.algorithm.critic else 0
    if pretraining:
      frozen = dataclasses.replace(learner, learn_policy=False)
      critic_alone = functools.partial(policy_step, frozen)
      state, update = jax.lax.cond(
        index < pretraining, critic_alone, learn, state, rollout, feedback
      )
    else:
      state, update = learn(state, rollout, feedback)
    return state, dict(update.metrics) | {_OUTCOME: outcome}

  def evaluate(self, numbers: Numbers, state: TrainState, seed: Array) -> dict[str, Any]:
    """Decodes held-out problems, with the keys of the loop."""
    del numbers
    settings = self.run.evaluation
    sample_key, _ = jax.random.split(evaluation_key(seed))
    keys = prompt_keys(sample_key, len(self.held_out.prompt_tokens))
    rollout, scores = self._source(self.run).draw(
      self._policy(state), self.held_out, keys, settings.temperature, settings.samples
    )
    lengths = jnp.sum(rollout.action_mask, axis=-1)
    return {_OUTCOME: Outcome(scores, lengths, rollout.finished, jnp.int32(0))}

  def finish(self, metrics: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Computes the metrics of rollouts and evaluations on the host, as the loop does."""
    metrics = dict(metrics)
    rollouts = _over_runs(metrics.pop(_OUTCOME), _step_metrics)
    evaluations = _over_runs(
      metrics.pop(f"{EVALUATION}{_OUTCOME}"),
      lambda outcome: evaluation_means(*outcome.on_host(), self.run.evaluation.samples),
    )
    return metrics | rollouts | {f"{EVALUATION}{k}": x for k, x in evaluations.items()}


def _step_metrics(outcome: Outcome) -> dict[str, float]:
  metrics = rollout_metrics(*outcome.on_host())
  if outcome.greedy_tokens:
    metrics["completions/generated"] += len(outcome.lengths)
    metrics["tokens/generated"] += int(outcome.greedy_tokens)
  return metrics


def _over_runs(
  outcomes: Outcome, function: Callable[[Outcome], Mapping[str, float]]
) -> dict[str, np.ndarray]:
  """Applies a function to outcomes `[R, steps, ...]`; returns `[R, steps]` by name."""
  shape = outcomes.greedy_tokens.shape
  rows = [function(jax.tree.map(lambda x, i=i: x[i], outcomes)) for i in np.ndindex(shape)]
  return {
    name: np.array([row[name] for row in rows], np.float32).reshape(shape)
    for name in rows[0]
  }
