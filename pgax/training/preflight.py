"""What can be found wrong with a run before anything is compiled."""

import contextlib
import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from transformers import PreTrainedTokenizerFast

from pgax.algorithms import Algorithm, loss, prepare
from pgax.data.demonstrations import CollateDemonstrations
from pgax.data.mixture import first_of_each
from pgax.models import hf
from pgax.models.decoder import Decoder
from pgax.rewards.pool import Job
from pgax.rewards.pool import RewardRunner as Scorer
from pgax.sandbox import Limits
from pgax.training.config import RunConfig
from pgax.training.errors import UserError
from pgax.training.mesh import make_mesh
from pgax.training.optimizer_config import check_decay
from pgax.training.policy import check_params, end_ids
from pgax.training.problems import prompt_collator
from pgax.training.reward_config import RewardModelConfig
from pgax.training.reward_model import check_parts, check_reward_model
from pgax.training.rollout import check_names, open_scorer
from pgax.training.state import abstract_policy
from pgax.training.workdir import read_config
from pgax.types import Example, Feedback, Rollout

# All problems are gone through; of a million, as they are generated, a spread.
_CHECKED_PROBLEMS = 1_000
_MANY_PROBLEMS = 200_000


def check_run(
  config: RunConfig,
  tokenizer: PreTrainedTokenizerFast,
  done: int | None = None,
  scorer: Scorer | None = None,
) -> None:
  """Refuses a run that would fail later.

  Args:
    config: the run.
    tokenizer: of the model.
    done: number of steps that it has done, those of the warm start included; None for a
      run that is at its beginning.
    scorer: applies the reward function; None to open one for the purpose.

  Raises:
    UserError: naming the setting, its value and what is allowed.
  """
  sampling = config.sampling
  prompts = prompt_collator(config, tokenizer)
  demonstrations = CollateDemonstrations(prompts, sampling.max_tokens)
  try:
    mesh = make_mesh(config.mesh.fsdp, config.mesh.model)
    _check_vocabulary(config, tokenizer)
    _check_devices(config, mesh)
    abstract_policy(Decoder(config.model), config.lora, mesh)
    _check_algorithm(config)
    _check_lengths(config, demonstrations)
    _check_unused(config)
    _check_decays(config)
    _check_deadline(config)
    check_reward_model(config, tokenizer, mesh)
    with (
      contextlib.nullcontext(scorer)
      if scorer
      else open_scorer(config.reward, config.scoring) as opened
    ):
      _check_rewards(config, opened)
    _check_sources(config, mesh, done)
  except ValueError as error:
    raise UserError(str(error)) from error


def _check_vocabulary(config: RunConfig, tokenizer: PreTrainedTokenizerFast) -> None:
  size, ends = config.model.vocab_size, end_ids(config, tokenizer)
  if not ends:
    raise ValueError("neither the tokenizer nor the model names a token that ends a text")
  # A checkpoint's tokenizer may have more tokens than its model, which no text makes use
  # of (Gemma 3 has one for images): there it is the tokens of the problems that count.
  largest = max(ends) if config.model_path else len(tokenizer) - 1
  if largest >= size:
    raise ValueError(
      f"model.vocab_size is {size}; the tokenizer has {len(tokenizer)} tokens, and the "
      f"model needs at least {largest + 1}"
    )


def _check_devices(config: RunConfig, mesh: Mesh) -> None:
  devices = mesh.shape["data"] * mesh.shape["fsdp"]
  parts = config.algorithm.minibatches * config.microbatches
  if config.sampling.prompts % (parts * devices):
    raise ValueError(
      f"sampling.prompts is {config.sampling.prompts}; it must be a multiple of "
      f"minibatches * microbatches * devices = {config.algorithm.minibatches} * "
      f"{config.microbatches} * {devices}"
    )
  sampling, cut = config.sampling, config.scoring.parts
  if sampling.prompts % (cut * devices):
    raise ValueError(
      f"sampling.prompts is {sampling.prompts}; it must be a multiple of scoring.parts * "
      f"devices = {cut} * {devices}"
    )
  completions = sampling.prompts // cut * sampling.group
  if sampling.slots > completions:
    raise ValueError(
      f"sampling.slots is {sampling.slots}; each of {cut} scoring.parts has {completions} "
      "completions"
    )
  stage = config.supervised
  if stage.steps and stage.batch_size % (stage.microbatches * devices):
    raise ValueError(
      f"supervised.batch_size is {stage.batch_size}; it must be a multiple of "
      f"microbatches * devices = {stage.microbatches} * {devices}"
    )


def _check_algorithm(config: RunConfig) -> None:
  """Traces the algorithm on shapes alone: what it refuses, it refuses here."""
  algorithm = config.algorithm
  _trace(config, algorithm, steps=config.step_reward is not None)
  # What a part needs it refuses to be without; so what it can be without is not used.
  unused = {
    "step_reward": config.step_reward and _traces(config, algorithm, steps=False),
    "algorithm.baseline": algorithm.baseline
    and _traces(config, dataclasses.replace(algorithm, baseline=None)),
    "algorithm.greedy_baseline": algorithm.greedy_baseline
    and _traces(config, dataclasses.replace(algorithm, greedy_baseline=False)),
  }
  for name, is_unused in unused.items():
    if is_unused:
      raise ValueError(
        f"{name} is given, and advantage {algorithm.advantage!r} makes no use of it; leave "
        "it out, or take an advantage that does"
      )
  if config.step_reward is not None and algorithm.shaping:
    raise ValueError(
      f"shaping is {algorithm.shaping}; it changes rewards of completions, and this "
      "algorithm learns from rewards of steps"
    )
  if algorithm.refill and config.sampling.group < 2:
    raise ValueError(
      "sampling.group is 1 and the algorithm drops groups of equal rewards; it would drop "
      "all of them. The group must be at least 2"
    )
  critic = algorithm.critic
  if critic and critic.pretraining >= config.steps > 0:
    raise ValueError(
      f"pretraining is {critic.pretraining} and steps is {config.steps}; the critic would "
      "learn in all of them and the policy in none. Raise steps, or lower pretraining"
    )


def _traces(config: RunConfig, algorithm: Algorithm, steps: bool = True) -> bool:
  """Whether the algorithm can be traced."""
  try:
    _trace(config, algorithm, steps and config.step_reward is not None)
  except (TypeError, ValueError):  # of an advantage made elsewhere, say None in a sum
    return False
  return True


def _trace(config: RunConfig, algorithm: Algorithm, steps: bool) -> None:
  """Traces an algorithm on the shapes of a run, with rewards of steps or without."""
  s = config.sampling
  prompt, group = (s.prompts, s.max_prompt_tokens), (s.prompts, s.group)
  completion = (*group, s.max_tokens)

  def array(shape: tuple[int, ...], dtype: type) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.dtype(dtype))

  floats, bools = array(completion, np.float32), array(completion, np.bool_)
  rollout = Rollout(
    prompt_tokens=array(prompt, np.int32),
    prompt_mask=array(prompt, np.bool_),
    tokens=array(completion, np.int32),
    mask=bools,
    logp=floats,
    sample_logp=floats,
    finished=array(group, np.bool_),
  )
  greedy = array((s.prompts,), np.float32) if algorithm.greedy_baseline else None
  feedback = Feedback(
    rewards=array(group, np.float32),
    valid=array(group, np.bool_),
    greedy_rewards=greedy,
    step_rewards=floats if steps else None,
    step_ends=bools if steps else None,
  )

  def whole(rollout, feedback, logp):
    values = logp if algorithm.critic else None
    baseline = algorithm.baseline.init() if algorithm.baseline else None
    batch = prepare(
      algorithm, rollout, feedback, logp, logp, baseline=baseline, values=values
    )
    return loss(algorithm, logp, batch, outputs=values)

  jax.eval_shape(whole, rollout, feedback, floats)


def _check_rewards(config: RunConfig, scorer: Scorer) -> None:
  """Tries the reward functions on the solution of a first problem, of each of a mixture."""
  for example in first_of_each(config.task.train):
    _check_reward(config, scorer, example)


def _check_reward(config: RunConfig, scorer: Scorer, example: Example) -> None:
  job = Job(example.prompt, example.solution, example.ground_truth, example.metadata)

  def refused(name: str, why: object) -> ValueError:
    return ValueError(
      f"{name} {getattr(config, name)!r} fails on the solution of a first problem, "
      f"{example.prompt!r}: {why}"
    )

  try:
    (outcome,) = scorer([job])
  except Exception as error:
    raise refused("reward", error) from error
  # An empty solution may well have no score; that is no fault of the function's.
  if outcome.reason not in ("", "nan"):
    raise refused("reward", outcome.detail)
  check_names(outcome)
  if config.reward_model.path:
    check_parts(outcome.scores)
  if config.step_reward is not None:
    try:
      config.step_reward(*job)
    except Exception as error:
      raise refused("step_reward", error) from error


def _check_unused(config: RunConfig) -> None:
  """Settings of a reward model, whose path was forgotten: nothing else would show it."""
  for name, default in vars(RewardModelConfig()).items():
    value = getattr(config.reward_model, name)
    if not config.reward_model.path and value != default:
      raise ValueError(
        f"reward_model.{name} is {value} and reward_model.path is ''; without the "
        "directory of a model there is nothing that it applies to"
      )


def _check_decays(config: RunConfig) -> None:
  algorithm, critic = config.algorithm, config.algorithm.critic
  updates = algorithm.epochs * algorithm.minibatches
  alone = critic.pretraining if critic else 0  # steps in which only the critic learns
  check_decay(config.optimizer, "optimizer", (config.steps - alone) * updates)
  if critic:
    check_decay(config.critic.optimizer, "critic.optimizer", config.steps * updates)


def _check_deadline(config: RunConfig) -> None:
  """A sandbox that ends by its own limit cleans up; the pool's deadline only kills."""
  deadline = config.scoring.deadline
  for limits in _limits(config.reward):
    if config.scoring.workers and limits.seconds >= deadline:
      raise ValueError(
        f"scoring.deadline is {deadline} and the reward's limits.seconds is "
        f"{limits.seconds}; the deadline must be longer"
      )


def _limits(value: object) -> Iterator[Limits]:
  """The limits of every sandbox in a reward function."""
  if isinstance(value, Limits):
    yield value
  elif dataclasses.is_dataclass(value):
    yield from _limits(tuple(vars(value).values()))
  elif isinstance(value, tuple):
    for item in value:
      yield from _limits(item)


def _check_sources(config: RunConfig, mesh: Mesh, done: int | None) -> None:
  """The folders of other runs whose policies this one is still to start from."""
  if done is None and config.model_path:
    hf.check(Path(config.model_path), config.model)
  folders = {}
  if done is None and config.policy_from:
    folders["policy_from"] = config.policy_from
  to_start = done is None or done < config.supervised.steps
  critic_from = config.critic.start
  if to_start and config.algorithm.critic and critic_from not in ("policy", "fresh"):
    folders["critic.start"] = critic_from
  for name, folder in folders.items():
    try:
      check_params(Decoder(config.model), mesh, Path(folder))
      _check_same_model(config, read_config(Path(folder)) or {})
    except UserError as error:
      raise UserError(f"{name}: {error}") from None


def _check_same_model(config: RunConfig, theirs: Mapping) -> None:
  """Settings that shapes do not tell of, such as the base of rotary wavelengths."""
  model = dict(theirs.get("model", {}))
  if path := model.pop("path", ""):
    # Its settings are that directory's, and its tokenizer is another one than ours.
    if path == config.model_path:
      return
    raise UserError(
      f"its policy is one of model.path {path!r}; give its folder 'export' as model.path"
    )
  ours = json.loads(json.dumps(dataclasses.asdict(config.model)))  # as a file has them
  for name, value in model.items():
    if ours.get(name) != value:
      raise UserError(f"model.{name} is {value} there and {ours.get(name)} here")


def _check_lengths(config: RunConfig, demonstrations: CollateDemonstrations) -> None:
  def check(ids: Sequence[int]) -> None:
    if max(ids) >= config.model.vocab_size:
      raise ValueError(
        f"a problem has token {max(ids)}; model.vocab_size is {config.model.vocab_size}"
      )

  for examples in (config.task.train, config.task.held_out):
    for index in _checked(examples):
      check(demonstrations.prompts.ids(examples[index]))
  if config.supervised.steps:
    width = config.supervised.row_tokens
    if width and width < demonstrations.width:
      raise ValueError(
        f"supervised.row_tokens is {width}; a prompt and a solution may have "
        f"{demonstrations.width} together (sampling.max_prompt_tokens and max_tokens)"
      )
    for index in _checked(config.task.train):
      check(demonstrations.ids(config.task.train[index]))


def _checked(examples: Sequence[Example]) -> range:
  many = len(examples) > _MANY_PROBLEMS
  return range(0, len(examples), len(examples) // _CHECKED_PROBLEMS if many else 1)
