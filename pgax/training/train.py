"""Training a policy: supervised steps, then reinforcement learning."""

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

from transformers import PreTrainedTokenizerFast

from pgax.distributed.hosts import on_writer, shared_errors
from pgax.errors import UserError
from pgax.learner.state import TrainState
from pgax.rollout.scoring import open_reward_runner
from pgax.runs.checkpoint import Checkpoints
from pgax.runs.lock import check_unlocked
from pgax.runs.loggers import Logger, check_loggers
from pgax.runs.workdir import open_workdir
from pgax.training.batches import fit_task
from pgax.training.build import build
from pgax.training.config import FREE_SETTINGS, RunConfig
from pgax.training.driver import DEFAULT_LOGGERS, drive
from pgax.training.preflight import check_run
from pgax.training.processes import check_processes
from pgax.training.profile import Profiler, check_profile
from pgax.training.progress import Progress, saved_progress
from pgax.training.run import PolicyRun
from pgax.training.saved import check_layout, record_of


@dataclasses.dataclass(frozen=True)
class Result:
  """Result of a call of `train`.

  Attributes:
    state: the last state.
    progress: its stage and step.
    finished: whether all steps are done; False after an interrupt.
  """

  state: TrainState
  progress: Progress
  finished: bool


def train(
  config: RunConfig,
  tokenizer: PreTrainedTokenizerFast,
  workdir: Path,
  record: Mapping | None = None,
  progress: bool = True,
  loggers: Sequence[str | Logger] = DEFAULT_LOGGERS,
  profile_steps: tuple[int, int] | None = None,
) -> Result:
  """Trains a policy, or continues to if the workdir holds an unfinished run.

  Args:
    config: configuration of the run; `build` makes its entries.
    tokenizer: tokenizer of the model.
    workdir: folder of the run; new, empty, or of an earlier call for the same run.
    record: the configuration as JSON values, saved as `config.json`; a folder with another
      record is rejected. None takes `to_json(config)`, or no record if a part of it, such
      as a task that is no entry, can't be saved; then only shapes are compared.
    progress: whether to show progress bars; the writer does.
    loggers: names of built-in loggers (see `runs.loggers.BUILT_IN`), or loggers. JSON Lines
      are always written.
    profile_steps: first and last step of the reinforcement stage to write a trace of, to
      the folder `profile` of the run; None for no trace.

  Returns:
    A `Result`. The state is the same, bit for bit, however often the run was interrupted.

  Raises:
    UserError: if the configuration can't be run or the folder can't be used, before
      anything is compiled.
    DivergedError: if several updates in a row are not finite (`max_skipped`).
  """
  record = record_of(config) if record is None else record
  config = build(config)
  check_processes(workdir, record, config.task.train)
  with contextlib.ExitStack() as stack:
    with shared_errors():
      check_loggers(loggers)
      check_profile(profile_steps, config.steps)
      check_unlocked(workdir)  # checked again by `open_workdir`, once the folder exists
      runner = stack.enter_context(open_reward_runner(config.reward, config.scoring))
      config, counts = fit_task(config, tokenizer)
      check_layout(workdir, record)
      done = saved_progress(workdir)
      check_run(config, tokenizer, done, runner)
      _check_steps(config, workdir, done)
    lock = stack.enter_context(open_workdir(workdir, record, FREE_SETTINGS))
    run = PolicyRun(config, tokenizer, runner, counts)
    run.checkpoints = Checkpoints(workdir, config.checkpoints.keep)
    on_writer(lambda: tokenizer.save_pretrained(workdir / "tokenizer"))
    profiler = Profiler(profile_steps, workdir)
    result = drive(run, workdir, lock, record, loggers, progress, profiler)
  return Result(result.state, Progress.of(result.state), result.finished)


def _check_steps(config: RunConfig, workdir: Path, done: Progress | None) -> None:
  if done is None:
    return
  if done.is_supervised:  # a finished stage is saved as the beginning of the next
    name, steps, too_many = "supervised.steps", config.supervised.steps, done.step + 1
  else:
    name, steps, too_many = "steps", config.steps, done.step
  if steps < too_many:
    raise UserError(
      f"{name} is {steps}, but the run in {workdir} has done {done.step} steps already; it "
      "can only continue"
    )
