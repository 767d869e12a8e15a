"""A trained policy, read back from the folder of its run."""

import contextlib
import dataclasses
import shutil
from collections.abc import Iterator
from pathlib import Path

from jax.sharding import Mesh
from transformers import PreTrainedTokenizerFast

from pgax.data.tokenizer import load_tokenizer
from pgax.models import hf
from pgax.models.decoder import Decoder
from pgax.models.partitioning import abstract_params
from pgax.training.checkpoint import Checkpoints
from pgax.training.config import RunConfig
from pgax.training.errors import UserError
from pgax.training.mesh import make_mesh
from pgax.training.sampler import Sampler, make_sampler
from pgax.types import PyTree


@dataclasses.dataclass(frozen=True)
class Policy:
  """What is needed to sample from a checkpoint.

  Attributes:
    params: of the model.
    step: number of reinforcement steps done; below 0 within the warm start.
    tokenizer: of the model.
    model: the decoder.
    mesh: of the devices, as the run laid them out.
    sampler: of completions, as the run draws them.
  """

  params: PyTree
  step: int
  tokenizer: PreTrainedTokenizerFast
  model: Decoder
  mesh: Mesh
  sampler: Sampler


def load_policy(config: RunConfig, workdir: Path) -> Policy:
  """Reads the last checkpoint of a run.

  Args:
    config: of the run.
    workdir: its folder.

  Returns:
    A `Policy`.

  Raises:
    UserError: if the folder has no checkpoint or tokenizer, or the checkpoint does not fit
      the configuration.
  """
  if not (workdir / "tokenizer").is_dir():
    raise UserError(f"{workdir} has no folder 'tokenizer'; give the folder of a run")
  model, mesh = Decoder(config.model), make_mesh(config.mesh.fsdp, config.mesh.model)
  params, step = load_params(model, mesh, workdir)
  tokenizer = load_tokenizer(workdir / "tokenizer")
  return Policy(
    params=params,
    step=step - config.warm_start.steps,
    tokenizer=tokenizer,
    model=model,
    mesh=mesh,
    sampler=make_sampler(
      config.sampling, model, tokenizer, mesh, end_ids(config, tokenizer)
    ),
  )


def end_ids(config: RunConfig, tokenizer: PreTrainedTokenizerFast) -> tuple[int, ...]:
  """Tokens that end a completion: the tokenizer's EOS, and what the model's files name."""
  named = hf.eos_ids(Path(config.model_path)) if config.model_path else ()
  return tuple(sorted({tokenizer.eos_token_id, *named} - {None}))


def export_policy(
  config: RunConfig, params: PyTree, tokenizer: PreTrainedTokenizerFast, folder: Path
) -> None:
  """Writes a policy as the directory that it came from: transformers and vLLM read it.

  Args:
    config: of the run, with a `model_path`.
    params: of the policy.
    tokenizer: of the model.
    folder: to write; an earlier export there is replaced.
  """
  shutil.rmtree(folder, ignore_errors=True)
  source = Path(config.model_path)
  dtype = hf.saved_dtype(source)
  dtype = dtype if dtype in hf.DTYPES else "float32"
  hf.save(folder, config.model, params, tokenizer, source, dtype)


def load_params(model: Decoder, mesh: Mesh, workdir: Path) -> tuple[PyTree, int]:
  """Reads the policy's parameters of the last checkpoint of a run.

  Args:
    model: the decoder that they are for.
    mesh: of the devices.
    workdir: folder of the run.

  Returns:
    The parameters, and the number of steps done, those of the warm start included.

  Raises:
    UserError: if there is no checkpoint, or it does not fit the model.
  """
  with _checkpoints(workdir) as checkpoints:
    return checkpoints.restore_params(abstract_params(model, mesh))


def check_params(model: Decoder, mesh: Mesh, workdir: Path) -> None:
  """Makes sure that `load_params` will work, by shapes alone; raises what it would."""
  with _checkpoints(workdir) as checkpoints:
    checkpoints.check_params(abstract_params(model, mesh))


@contextlib.contextmanager
def _checkpoints(workdir: Path) -> Iterator[Checkpoints]:
  if not (workdir / "checkpoints").is_dir():
    raise UserError(f"{workdir} holds no checkpoints; give the folder of a run")
  checkpoints = Checkpoints(workdir, read_only=True)
  try:
    yield checkpoints
  finally:
    checkpoints.close()
