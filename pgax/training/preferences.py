"""Training a reward model on preference pairs."""

import dataclasses
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerFast

from pgax.data.demonstrations import CollateDemonstrations
from pgax.data.pipeline import batches
from pgax.data.preferences import CollatePreferences
from pgax.data.prompts import CollatePrompts
from pgax.distributed.hosts import on_writer, shared_errors
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
from pgax.rollout.source import Batches, CheckedIterator
from pgax.runs.checkpoint import Checkpoints
from pgax.runs.lock import check_unlocked
from pgax.runs.loggers import Logger, check_loggers
from pgax.runs.workdir import open_workdir
from pgax.training.build import build
from pgax.training.config import PreferenceConfig
from pgax.training.driver import DEFAULT_LOGGERS, drive
from pgax.training.loop import Schedule, Stage
from pgax.training.policy import export_dtype
from pgax.training.processes import check_processes
from pgax.training.saved import check_layout, record_of
from pgax.training.stages import PairAccuracy, pair_arrays

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
  """A run of a reward model, as the driver needs it; see `driver.Run`.

  Args:
    config: configuration of the run.
    tokenizer: tokenizer of the model.
  """

  frozen = ()
  checkpoints: Checkpoints  # set once the folder is open

  def __init__(self, config: PreferenceConfig, tokenizer: PreTrainedTokenizerFast):
    self.config, self.max_skipped = config, config.max_skipped
    self.mesh = make_mesh(config.mesh)
    self.model = ScalarDecoder(headless(config.model), training_layout(self.mesh))
    self.optimizer = make_optimizer(config.optimizer)
    self.abstract = abstract_reward_model_state(self.model, self.optimizer, self.mesh)
    prompts = CollatePrompts(tokenizer, config.max_prompt_tokens)
    completions = CollateDemonstrations(prompts, config.max_completion_tokens)
    self.collate = CollatePreferences(completions)
    pairs = batches(config.data.train, self.collate, config.batch_size, config.seed)
    source = Batches(CheckedIterator(pairs), batch_sharding(self.mesh), pair_arrays)
    self.sources = {"train": source}

  def start(self) -> RewardModelState:
    """Returns the state of a new run."""
    config, shardings = self.config, shardings_of(self.abstract)
    state = init_reward_model_state(self.model, self.optimizer, shardings, config.seed)
    if not config.model_path:
      return state
    decoder_shardings = param_shardings(Decoder(config.model), self.mesh)
    decoder = hf.load_params(Path(config.model_path), config.model, decoder_shardings)
    return state.replace(params=with_decoder(state.params, decoder))

  def data(self, state: RewardModelState) -> dict[str, Any]:
    """Returns the number of steps done."""
    return {"step": int(state.step)}

  def resume(self, data: Mapping[str, Any]) -> None:
    """Checks that the run is not beyond its last step."""
    if data["step"] > self.config.steps:
      raise UserError(
        f"steps is {self.config.steps}, but the run in {self.checkpoints.workdir} has done "
        f"{data['step']} steps already; it can only continue"
      )

  def last_steps(self, state: RewardModelState) -> dict[str, int]:
    """Returns the last step, which is not done again."""
    return {"": int(state.step)}

  def stages(self, state: RewardModelState | None = None) -> Iterator[Stage]:
    """Yields the only stage."""
    del state
    config, held_out = self.config, self.config.data.held_out
    schedule = Schedule(
      steps=config.steps,
      eval_every=config.eval_every,
      eval_first=False,
      eval_last=True,
      checkpoint_every=config.checkpoints.every,
    )
    step = make_preference_step(self.model, self.optimizer, shardings_of(self.abstract))
    count = min(config.eval_pairs, len(held_out))
    yield Stage(
      name=config.name,
      schedule=schedule,
      source=self.sources["train"],
      update=lambda _: step,
      evaluate=PairAccuracy(
        self.model,
        self.collate,
        [held_out[i] for i in range(count)],
        config.batch_size,
        batch_sharding(self.mesh),
      ),
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
    run.checkpoints = Checkpoints(workdir, config.checkpoints.keep)
    result = drive(run, workdir, lock, record, loggers, progress)
    if not result.finished:
      return PreferenceResult(result.state, accuracy=None, finished=False)
    # A run that was finished before has evaluated nothing in this call.
    (stage,) = run.stages()
    evaluation = result.evaluation or stage.evaluate(result.state, None)[0]
    _export(run, result.state, tokenizer, workdir / "export")
  return PreferenceResult(result.state, evaluation["eval/accuracy"], finished=True)


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
