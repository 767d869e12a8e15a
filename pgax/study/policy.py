"""A run of the training loop as a program, made of the very functions of the loop."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from transformers import PreTrainedTokenizerFast

from pgax.algorithms import filters, join
from pgax.data.prompts import CollatePrompts
from pgax.data.tokenizer import token_bytes
from pgax.distributed.mesh import make_mesh
from pgax.evaluation import evaluation_key
from pgax.learner import Learner, make_learner, policy_step, step_keys
from pgax.learner.optimizer import make_optimizer
from pgax.learner.state import TrainState, new_state, reinforcement_state, with_policy
from pgax.learner.supervised_step import supervised_step
from pgax.models import lora
from pgax.models.decoder import Decoder
from pgax.ops.masking import masked_mean
from pgax.rollout.sampler import make_sampler
from pgax.sampling import Options, prompt_keys, sample
from pgax.study.problems import (
  Problems,
  held_out_problems,
  solution_batches,
  training_problems,
)
from pgax.study.program import Metrics, Numbers, Program
from pgax.study.settings import built, eval_every
from pgax.training.batches import prompt_collator
from pgax.training.config import RunConfig
from pgax.training.policy import eos_ids
from pgax.types import Array, Feedback, PyTree, Rollout, TokenReward

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
    fresh = new_state(state.key, learner)  # controllers have numbers of the setting
    names = ("kl_state", "entropy_state", "baseline_state")
    state = state.replace(**{name: getattr(fresh, name) for name in names})
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
    run = join(self.run, numbers)
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

  def _sample(
    self, params: PyTree, problems: Problems, keys: Array, temperature: Array, group: int
  ) -> tuple[Rollout, Mapping[str, Array]]:
    """Samples and scores completions."""
    options: Options = self.sampler.options
    rollout = sample(
      self.model,
      params,
      jnp.asarray(problems.prompt_tokens),
      jnp.asarray(problems.prompt_mask),
      keys,
      options.replace(temperature=temperature),
      group=group,
      max_tokens=self.run.sampling.max_completion_tokens,
      record_experts=self.sampler.record_experts,
      fixed_steps=True,
    )
    scores = self.reward(
      rollout.prompt_tokens, rollout.tokens, rollout.token_mask, problems.answers
    )
    return rollout, scores

  def step(
    self, numbers: Numbers, state: TrainState, problems: Problems, index: Array
  ) -> tuple[TrainState, Metrics]:
    """Samples, scores and learns, with the keys of the loop."""
    run, learner = self._learner(numbers)
    key, _ = step_keys(state.key, state.total_steps)
    # The actor samples a batch of prompts with the first of as many keys as it may need.
    keys = prompt_keys(jax.random.split(key, 1)[0], run.sampling.prompts_per_step)
    policy, temperature = self._policy(state), run.sampling.temperature
    rollout, scores = self._sample(
      policy, problems, keys, temperature, run.sampling.group_size
    )
    metrics, greedy = _rollout_metrics(rollout, scores), None
    if run.algorithm.greedy_baseline:
      decoded, decoded_scores = self._sample(policy, problems, keys, 0.0, 1)
      greedy = decoded_scores["reward"][:, 0]
      metrics["tokens/generated"] += jnp.sum(decoded.action_mask)
      metrics["completions/generated"] += greedy.size
    names = run.algorithm.components
    feedback = Feedback(
      rewards=scores["reward"],
      valid=jnp.ones(rollout.finished.shape, bool),
      greedy_rewards=greedy,
      components=jnp.stack([scores[x] for x in names], axis=-1) if names else None,
    )
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
    return state, dict(update.metrics) | metrics

  def evaluate(self, numbers: Numbers, state: TrainState, seed: Array) -> Metrics:
    """Evaluates the policy on held-out problems, with the keys of the loop."""
    del numbers
    settings = self.run.evaluation
    sample_key, _ = jax.random.split(evaluation_key(seed))
    count = len(self.held_out.prompt_tokens)
    _, scores = self._sample(
      self._policy(state),
      self.held_out,
      prompt_keys(sample_key, count),
      settings.temperature,
      settings.samples,
    )
    accuracy = scores.get("accuracy", (scores["reward"] >= 1).astype(jnp.float32))
    return {"accuracy": jnp.mean(accuracy), "reward": jnp.mean(scores["reward"])}


def _rollout_metrics(rollout: Rollout, scores: Mapping[str, Array]) -> dict[str, Array]:
  """The metrics of `rollout.metrics` that arrays decide."""
  rewards, mask = scores["reward"], rollout.action_mask
  valid = jnp.ones(rewards.shape, bool)
  names = [name for name in scores if name != "reward"]
  return {f"reward/{name}": jnp.mean(scores[name]) for name in names} | {
    "reward/mean": jnp.mean(rewards),
    "reward/std": jnp.std(rewards),
    "groups/zero_variance": 1.0 - jnp.mean(filters.informative(rewards, valid)),
    "length/mean": jnp.mean(jnp.sum(mask, axis=-1)),
    "length/truncated": 1.0 - masked_mean(rollout.finished.astype(jnp.float32), valid),
    "tokens/generated": jnp.sum(mask),
    "completions/generated": jnp.int32(rewards.size),
  }
