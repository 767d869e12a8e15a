"""Training of a reward model on preference pairs, evaluated and saved on the way."""

import dataclasses
import math
import shutil
from collections.abc import Mapping
from pathlib import Path

import jax
import numpy as np
from tqdm import tqdm
from transformers import PreTrainedTokenizerFast

from pgax.data.demonstrations import CollateDemonstrations
from pgax.data.pipeline import batches
from pgax.data.preferences import CollatePreferences, PreferenceBatch
from pgax.data.prompts import CollatePrompts
from pgax.models import Critic, Decoder, hf
from pgax.models.heads import headless, with_decoder
from pgax.models.partitioning import batch_sharding, param_shardings
from pgax.training.checkpoint import Checkpoints
from pgax.training.errors import UserError
from pgax.training.health import check_finite
from pgax.training.interrupt import Interrupt
from pgax.training.mesh import make_mesh
from pgax.training.metrics import Log
from pgax.training.preference_config import PreferenceConfig
from pgax.training.preference_step import (
  ScorerState,
  abstract_scorer_state,
  init_scorer_state,
  make_preference_step,
  margins,
)
from pgax.training.state import make_optimizer, shardings_of
from pgax.training.workdir import open_workdir
from pgax.types import Array

_DATA = "train"
_CHECKED = 1_000  # pairs; a later one over the limit ends the run with the same message


@dataclasses.dataclass(frozen=True)
class PreferenceResult:
  """How a call of `train_on_preferences` ended.

  Attributes:
    state: the last state.
    accuracy: on the held-out pairs, as last evaluated; nan if an interrupt came before.
    finished: whether all steps are done; False after an interrupt.
  """

  state: ScorerState
  accuracy: float
  finished: bool


class PreferenceRun:
  """What stays the same from step to step; the state is passed from call to call.

  Args:
    config: the run.
    tokenizer: of the model.
  """

  def __init__(self, config: PreferenceConfig, tokenizer: PreTrainedTokenizerFast):
    self.config = config
    self.mesh = make_mesh(config.mesh.fsdp, config.mesh.model)
    self.scorer = Critic(headless(config.model))
    self.optimizer = make_optimizer(config.optimizer)
    self.abstract = abstract_scorer_state(self.scorer, self.optimizer, self.mesh)
    shardings = shardings_of(self.abstract)
    self.step = make_preference_step(self.scorer, self.optimizer, shardings)
    prompts = CollatePrompts(tokenizer, config.max_prompt_tokens)
    self.collate = CollatePreferences(CollateDemonstrations(prompts, config.max_tokens))

  def start(self) -> ScorerState:
    """A fresh state; with a `model_path`, of that model under a head at zero."""
    config, shardings = self.config, shardings_of(self.abstract)
    state = init_scorer_state(self.scorer, self.optimizer, shardings, config.seed)
    if not config.model_path:
      return state
    places = param_shardings(Decoder(config.model), self.mesh)
    decoder = hf.load_params(Path(config.model_path), config.model, places)
    return state.replace(params=with_decoder(state.params, decoder))

  def arrays(self, batch: PreferenceBatch) -> tuple[Array, ...]:
    """A batch on the devices."""
    arrays = (batch.prompts.tokens, batch.prompts.mask, batch.tokens, batch.mask)
    return jax.device_put(arrays, batch_sharding(self.mesh))

  def accuracy(self, state: ScorerState) -> float:
    """How often the first held-out pairs are told apart."""
    pairs, size = self.config.data.held_out, self.config.batch_size
    count, above = min(self.config.eval_pairs, len(pairs)), []
    for start in range(0, count, size):
      # The last batch is filled up, so that there is one shape.
      some = [pairs[min(i, count - 1)] for i in range(start, start + size)]
      found = margins(self.scorer, state.params, *self.arrays(self.collate(some)))
      above.append(np.asarray(found)[: count - start])
    return float(np.mean(np.concatenate(above) > 0))

  def check(self) -> None:
    """Refuses what would fail later: shapes, lengths, and what could not be exported.

    Raises:
      ValueError: naming what is wrong.
    """
    config, devices = self.config, self.mesh.shape["data"] * self.mesh.shape["fsdp"]
    if config.batch_size % devices:
      raise ValueError(
        f"batch_size is {config.batch_size}; it must be a multiple of the {devices} "
        "devices that a batch is spread over"
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
) -> PreferenceResult:
  """Does a run, or the rest of it, and exports the scorer to `workdir/export`.

  Args:
    config: the run.
    tokenizer: of the model.
    workdir: folder of the run, as for `training.train`.
    record: the configuration as JSON values, as for `training.train`.
    progress: whether to show a progress bar.

  Returns:
    A `PreferenceResult`. The state is the same, bit for bit, however often the run was
    interrupted.

  Raises:
    UserError: if the configuration can't be run or the folder can't be used.
    DivergedError: if an update is not finite.
  """
  try:
    run = PreferenceRun(config, tokenizer)
    run.check()
  except ValueError as error:
    raise UserError(str(error)) from error
  open_workdir(workdir, record or {})
  checkpoints = Checkpoints(workdir, config.keep_checkpoints)
  iterator = batches(config.data.train, run.collate, config.batch_size, config.seed)
  if checkpoints.latest() is None:
    state = run.start()
  else:
    state, positions = checkpoints.restore(run.abstract)
    iterator.set_state(positions[_DATA])
  done, accuracy = int(state.step), float("nan")
  if done > config.steps:
    checkpoints.close()
    raise UserError(
      f"steps is {config.steps}; the run in {workdir} has done {done} already"
    )
  log = Log(workdir, last=done)

  def save() -> None:
    log.flush()
    checkpoints.save(state, {_DATA: iterator.get_state()})

  try:
    with (
      Interrupt() as interrupt,
      tqdm(total=config.steps, initial=done, disable=not progress, desc=config.name) as bar,
    ):
      while done < config.steps and not interrupt.requested:
        try:
          batch = run.arrays(next(iterator))
        except ValueError as error:  # a pair over the limit
          raise UserError(str(error)) from error
        state, told = run.step(state, *batch)
        done += 1
        metrics = {name: float(value) for name, value in told.items()}
        check_finite(done, metrics)
        if done % config.eval_every == 0 or done == config.steps:
          accuracy = run.accuracy(state)
          metrics["eval/accuracy"] = accuracy
        log.metrics(done, metrics)
        if done % config.checkpoint_every == 0:
          save()
        bar.set_postfix(loss=f"{metrics['loss']:.3f}", refresh=False)
        bar.update()
    save()
  finally:
    checkpoints.close()
    log.close()
  finished = done >= config.steps
  if finished:
    accuracy = run.accuracy(state) if math.isnan(accuracy) else accuracy
    _export(run, state, tokenizer, workdir / "export")
  return PreferenceResult(state, accuracy, finished)


def _export(
  run: PreferenceRun, state: ScorerState, tokenizer: PreTrainedTokenizerFast, folder: Path
) -> None:
  shutil.rmtree(folder, ignore_errors=True)
  source = Path(run.config.model_path) if run.config.model_path else None
  dtype = hf.saved_dtype(source) if source else "float32"
  dtype = dtype if dtype in hf.DTYPES else "float32"
  hf.save_scorer(folder, run.config.model, state.params, tokenizer, source, dtype)
