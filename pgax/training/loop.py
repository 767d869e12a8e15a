"""The loop: supervised steps, then reinforcement, evaluated and saved on the way."""

import dataclasses
import functools
from collections.abc import Mapping
from pathlib import Path

from tqdm import tqdm
from transformers import PreTrainedTokenizerFast

from pgax.training.checkpoint import last_step
from pgax.training.config import RunConfig
from pgax.training.errors import UserError
from pgax.training.evaluation import evaluation_metrics
from pgax.training.interrupt import Interrupt
from pgax.training.metrics import Log
from pgax.training.preflight import check_run
from pgax.training.problems import fit_problems
from pgax.training.rollout import open_scorer
from pgax.training.run import Run
from pgax.training.state import TrainState
from pgax.training.workdir import open_workdir

_SUPERVISED = "supervised"
# A supervised step is short, so its checkpoints are further apart.
_SUPERVISED_STEPS_PER_STEP = 10


@dataclasses.dataclass(frozen=True)
class Result:
  """How a call of `train` ended.

  Attributes:
    state: the last state.
    step: number of reinforcement steps done, in this call and before it.
    finished: whether that is all of them; False after an interrupt.
  """

  state: TrainState
  step: int
  finished: bool


def train(
  config: RunConfig,
  tokenizer: PreTrainedTokenizerFast,
  workdir: Path,
  record: Mapping | None = None,
  progress: bool = True,
) -> Result:
  """Does a run, or the rest of it: the same call goes on where the last one ended.

  Args:
    config: the run.
    tokenizer: of the model.
    workdir: folder of the run; new, empty, or of an earlier call for the same run.
    record: the configuration as JSON values, kept in the folder as `config.json`; a folder
      with another one is refused. Without it nothing but shapes is compared.
    progress: whether to show progress bars.

  Returns:
    A `Result`. The state is the same, bit for bit, however often the run was interrupted.

  Raises:
    UserError: if the configuration can't be run or the folder can't be used, before
      anything is compiled.
    DivergedError: if an update is not finite.
  """
  with open_scorer(config.reward, config.scoring) as scorer:
    config, counts = fit_problems(config, tokenizer)
    done = last_step(workdir)
    check_run(config, tokenizer, done, scorer)
    _check_steps(config, workdir, done or 0)
    open_workdir(workdir, record or {})
    run = Run(config, tokenizer, workdir, scorer)
    return _train(run, workdir, counts, progress)


def _check_steps(config: RunConfig, workdir: Path, done: int) -> None:
  done -= config.supervised.steps
  if done > config.steps:
    raise UserError(
      f"steps is {config.steps}; the run in {workdir} has done {done} already, and can "
      "only go further"
    )


def _train(run: Run, workdir: Path, counts: Mapping[str, int], progress: bool) -> Result:
  config = run.config
  state, first = run.start(), config.supervised.steps
  done = int(state.step)
  run.tokenizer.save_pretrained(workdir / "tokenizer")
  # The evaluation at step 0 is done again by a run that goes on from there.
  log = Log(workdir, last=done - first if done > first else -1)
  begun = False
  try:
    with Interrupt() as interrupt:
      if done < first:
        state = _supervise(run, state, workdir, interrupt, progress)
      if int(state.step) >= first and not interrupt.requested:
        begun, state = True, _reinforce(run, state, log, counts, interrupt, progress)
      log.flush()
      run.save(state)
  finally:
    run.checkpoints.close()
    log.close()
  step = max(int(state.step) - first, 0)
  return Result(state, step, begun and step >= config.steps)


def _supervise(
  run: Run, state: TrainState, workdir: Path, interrupt: Interrupt, progress: bool
) -> TrainState:
  config, stage = run.config, run.config.supervised
  done, shown = int(state.step), {}
  log = Log(workdir, last=done or -1, stage=_SUPERVISED)

  def evaluated() -> dict[str, float]:
    found = run.evaluate(state)
    shown["accuracy"] = f"{found.accuracy:.1%}"
    return evaluation_metrics(found)

  try:
    if not done and stage.eval_every:
      log.metrics(0, evaluated())
    with tqdm(
      total=stage.steps, initial=done, disable=not progress, desc=_SUPERVISED
    ) as bar:
      while done < stage.steps and not interrupt.requested:
        state, metrics = run.supervise(state)
        done += 1
        if stage.eval_every and done % stage.eval_every == 0:
          metrics |= evaluated()
        log.metrics(done, metrics)
        every = config.checkpoint_every * _SUPERVISED_STEPS_PER_STEP
        if done % every == 0 or done == stage.steps:
          log.flush()
          run.save(state)
        shown["loss"] = f"{metrics['loss']:.3f}"
        bar.set_postfix(shown, refresh=False)
        bar.update()
  finally:
    log.close()
  return state


def _reinforce(
  run: Run,
  state: TrainState,
  log: Log,
  counts: Mapping[str, int],
  interrupt: Interrupt,
  progress: bool,
) -> TrainState:
  config = run.config
  total, step = config.steps, int(state.step) - config.supervised.steps
  shown = {}
  if step == 0:
    found = run.evaluate(state)
    log.metrics(0, evaluation_metrics(found) | counts)
    log.samples(0, "held_out", found.samples)
    shown["accuracy"] = f"{found.accuracy:.1%}"
  with tqdm(total=total, initial=step, disable=not progress, desc=config.name) as bar:
    while step < total and not interrupt.requested:
      step += 1
      keep = step % config.samples_every == 0 or step in (1, total)
      keep_samples = functools.partial(log.samples, step, "train") if keep else None
      state, metrics = run.reinforce(state, keep_samples)
      if step % config.eval_every == 0 or step == total:
        found = run.evaluate(state)
        metrics |= evaluation_metrics(found)
        shown["accuracy"] = f"{found.accuracy:.1%}"
        if step == total:
          log.samples(step, "held_out", found.samples)
      log.metrics(step, metrics)
      if step % config.checkpoint_every == 0 or step == total:
        log.flush()  # what is before a checkpoint is never written again
        run.save(state)
      shown["reward"] = f"{metrics['reward/mean']:.2f}"
      bar.set_postfix(shown, refresh=False)
      bar.update()
  return state
