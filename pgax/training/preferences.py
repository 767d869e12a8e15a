"""Training a reward model on preference pairs."""

import contextlib
import dataclasses
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from transformers import PreTrainedTokenizerFast

from pgax.data.demonstrations import CollateDemonstrations
from pgax.data.pipeline import batches
from pgax.data.preferences import CollatePreferences
from pgax.data.prompts import CollatePrompts
from pgax.distributed.hosts import is_writer, on_writer, shared_errors, wait_for_all
from pgax.distributed.mesh import make_mesh
from pgax.distributed.partitioning import (
  batch_sharding,
  batch_shards,
  param_shardings,
  shardings_of,
  training_layout,
)
from pgax.errors import UserError
from pgax.learner.optimizer import make_optimizer
from pgax.learner.preference_step import (
  RewardModelState,
  abstract_reward_model_state,
  init_reward_model_state,
  make_preference_step,
)
from pgax.models import Decoder, ScalarDecoder, hf
from pgax.models.heads import headless, with_decoder
from pgax.runs.checkpoint import Checkpoints
from pgax.runs.interrupt import Interrupt
from pgax.runs.lock import check_unlocked
from pgax.runs.loggers import Logger, check_loggers, open_loggers
from pgax.runs.workdir import WorkdirLock, open_workdir
from pgax.training.batches import next_of
from pgax.training.build import build
from pgax.training.config import PreferenceConfig
from pgax.training.health import SkippedUpdates
from pgax.training.loop import Schedule, StageResult, run_stage
from pgax.training.policy import export_dtype
from pgax.training.processes import check_processes
from pgax.training.saved import check_layout, record_of
from pgax.training.stages import PreferenceLearning
from pgax.training.train import DEFAULT_LOGGERS

_DATA = "train"
_CHECKED = 1_000  # pairs; a later one over the limit ends the run with the same message
_FREE = frozenset(
  {"steps", "eval_every", "checkpoints.every", "checkpoints.keep", "max_skipped"}
)


@dataclasses.dataclass(frozen=True)
class PreferenceResult:
  """Result of a call of `train_on_preferences`.

  Attributes:
    state: the last state.
    accuracy: accuracy of the last state on held-out pairs; None after an interrupt.
    finished: whether all steps are done; False after an interrupt.
  """

  state: RewardModelState
  accuracy: float | None
  finished: bool


class PreferenceRun:
  """Everything that stays the same from step to step; the state is passed on.

  Args:
    config: configuration of the run.
    tokenizer: tokenizer of the model.
  """

  def __init__(self, config: PreferenceConfig, tokenizer: PreTrainedTokenizerFast):
    self.config, self.mesh = config, make_mesh(config.mesh)
    self.model = ScalarDecoder(headless(config.model), training_layout(self.mesh))
    self.optimizer = make_optimizer(config.optimizer)
    self.abstract = abstract_reward_model_state(self.model, self.optimizer, self.mesh)
    prompts = CollatePrompts(tokenizer, config.max_prompt_tokens)
    completions = CollateDemonstrations(prompts, config.max_completion_tokens)
    self.collate = CollatePreferences(completions)
    self.iterator = batches(config.data.train, self.collate, config.batch_size, config.seed)

  def start(self, checkpoints: Checkpoints) -> RewardModelState:
    """Returns the state to start from: that of the latest checkpoint, or a fresh one."""
    if checkpoints.latest() is not None:
      state, data = checkpoints.restore(self.abstract)
      self.iterator.set_state(data[_DATA])
      return state
    config, shardings = self.config, shardings_of(self.abstract)
    state = init_reward_model_state(self.model, self.optimizer, shardings, config.seed)
    if not config.model_path:
      return state
    decoder_shardings = param_shardings(Decoder(config.model), self.mesh)
    decoder = hf.load_params(Path(config.model_path), config.model, decoder_shardings)
    return state.replace(params=with_decoder(state.params, decoder))

  def stage(self) -> PreferenceLearning:
    """Returns the only stage."""
    config = self.config
    schedule = Schedule(
      steps=config.steps,
      eval_every=config.eval_every,
      eval_first=False,
      eval_last=True,
      checkpoint_every=config.checkpoints.every,
    )
    held_out = config.data.held_out
    count = min(config.eval_pairs, len(held_out))
    return PreferenceLearning(
      name=config.name,
      schedule=schedule,
      model=self.model,
      train_step=make_preference_step(
        self.model, self.optimizer, shardings_of(self.abstract)
      ),
      next_pairs=next_of(self.iterator),
      collate=self.collate,
      held_out=[held_out[i] for i in range(count)],
      batch_size=config.batch_size,
      sharding=batch_sharding(self.mesh),
    )

  def check(self) -> None:
    """Rejects what would fail later: shapes, lengths, and models without an export.

    Raises:
      ValueError: with what is wrong.
    """
    config, devices = self.config, batch_shards(self.mesh)
    if config.batch_size % devices:
      raise ValueError(
        f"batch_size is {config.batch_size}; it must be a multiple of the {devices} "
        "devices that a batch is sharded over"
      )
    if config.model_path:
      hf.check(Path(config.model_path), config.model)
    else:
      hf.to_hf(headless(config.model))
    largest = 0
    splits = ((config.data.train, _CHECKED), (config.data.held_out, config.eval_pairs))
    for pairs, count in splits:
      for index in range(min(count, len(pairs))):
        batch = self.collate([pairs[index]])
        largest = max(largest, batch.tokens.max(), batch.prompts.tokens.max())
    if largest >= config.model.vocab_size:
      raise ValueError(
        f"a pair has token {largest}; model.vocab_size is {config.model.vocab_size}"
      )


def train_on_preferences(
  config: PreferenceConfig,
  tokenizer: PreTrainedTokenizerFast,
  workdir: Path,
  record: Mapping | None = None,
  progress: bool = True,
  loggers: Sequence[str | Logger] = DEFAULT_LOGGERS,
) -> PreferenceResult:
  """Trains a reward model, or continues to, then exports it to `workdir/export`.

  Args:
    config: configuration of the run.
    tokenizer: tokenizer of the model.
    workdir: folder of the run; see `train`.
    record: the configuration as JSON values; see `train`.
    progress: whether to show a progress bar.
    loggers: loggers, or their names; see `train`.

  Returns:
    A `PreferenceResult`. The state is the same, bit for bit, however often the run was
    interrupted.

  Raises:
    UserError: if the configuration can't be run or the folder can't be used.
    DivergedError: if several updates in a row are not finite (`max_skipped`).
  """
  record = record_of(config) if record is None else record
  config = build(config)
  check_processes(workdir, record)
  with shared_errors():
    check_loggers(loggers)
    check_unlocked(workdir)
    try:
      run = PreferenceRun(config, tokenizer)
      run.check()
    except ValueError as error:
      raise UserError(str(error)) from error
    check_layout(workdir, record)
  with open_workdir(workdir, record, _FREE) as lock:
    result = _train(run, workdir, lock, record, progress, loggers)
    if not result.finished:
      return PreferenceResult(result.state, accuracy=None, finished=False)
    # A run that was finished before has evaluated nothing in this call.
    evaluation = result.evaluation or run.stage().evaluate(result.state)[0]
    _export(run, result.state, tokenizer, workdir / "export")
  return PreferenceResult(result.state, evaluation["eval/accuracy"], finished=True)


def _train(
  run: PreferenceRun,
  workdir: Path,
  lock: WorkdirLock,
  record: Mapping,
  progress: bool,
  loggers: Sequence[str | Logger],
) -> StageResult:
  checkpoints = Checkpoints(workdir, run.config.checkpoints.keep)
  with contextlib.closing(checkpoints):
    state = run.start(checkpoints)
    done = int(state.step)
    if done > run.config.steps:
      raise UserError(
        f"steps is {run.config.steps}, but the run in {workdir} has done {done} steps "
        "already"
      )

    def save(state: RewardModelState) -> None:
      lock.check()
      data = {_DATA: run.iterator.get_state()}
      checkpoints.save(int(state.step), state, data, wait=False)

    with shared_errors():
      logger = open_loggers(loggers, workdir, {"": done})
    with contextlib.closing(logger), Interrupt() as interrupt:
      with shared_errors():
        logger.start(record)
      wait_for_all()
      result = run_stage(
        run.stage(),
        state,
        logger=logger,
        save=save,
        interrupt=interrupt,
        skipped=SkippedUpdates(workdir, run.config.max_skipped, checkpoints.latest),
        progress=progress and is_writer(),
      )
      with shared_errors():
        logger.flush()
      save(result.state)
      checkpoints.wait()
  return result


def _export(
  run: PreferenceRun,
  state: RewardModelState,
  tokenizer: PreTrainedTokenizerFast,
  folder: Path,
) -> None:
  on_writer(lambda: shutil.rmtree(folder, ignore_errors=True))
  source = Path(run.config.model_path) if run.config.model_path else None
  hf.save_reward_model(
    folder, run.config.model, state.params, tokenizer, source, export_dtype(source)
  )
