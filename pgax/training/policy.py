"""A trained policy, read back from the folder of its run."""

import contextlib
import dataclasses
import shutil
from collections.abc import Iterator
from pathlib import Path

from jax.sharding import Mesh
from transformers import PreTrainedTokenizerFast

from pgax.data.tokenizer import load_tokenizer
from pgax.models import hf, lora
from pgax.models.decoder import Decoder
from pgax.models.lora import LoraConfig
from pgax.training.checkpoint import Checkpoints
from pgax.training.config import RunConfig
from pgax.training.errors import UserError
from pgax.training.mesh import make_mesh
from pgax.training.sampler import Sampler, make_sampler
from pgax.training.state import abstract_policy
from pgax.training.workdir import read_config
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
  params, step = load_params(model, mesh, workdir, config.lora)
  tokenizer = load_tokenizer(workdir / "tokenizer")
  return Policy(
    params=params,
    step=step - config.supervised.steps,
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


def load_params(
  model: Decoder, mesh: Mesh, workdir: Path, adapters: LoraConfig | None = None
) -> tuple[PyTree, int]:
  """Reads the policy's parameters of the last checkpoint of a run, adapters merged.

  Args:
    model: the decoder that they are for.
    mesh: of the devices.
    workdir: folder of the run.
    adapters: of the run; None for what its `config.json` says.

  Returns:
    The parameters, and the number of steps done, those of the warm start included.

  Raises:
    UserError: if there is no checkpoint, or it does not fit the model.
  """
  adapters = _saved_adapters(workdir) if adapters is None else adapters
  with _checkpoints(workdir) as checkpoints:
    found, step = checkpoints.restore_params(_fields(model, adapters, mesh))
  return lora.apply(adapters, found["base"], found["params"]), step


def check_params(model: Decoder, mesh: Mesh, workdir: Path) -> None:
  """Makes sure that `load_params` will work, by shapes alone; raises what it would."""
  with _checkpoints(workdir) as checkpoints:
    checkpoints.check_params(_fields(model, _saved_adapters(workdir), mesh))


def _fields(model: Decoder, adapters: LoraConfig, mesh: Mesh) -> dict[str, PyTree]:
  """The fields of a state that its policy is made of, by shapes alone."""
  base, params = abstract_policy(model, adapters, mesh)
  return {"base": base, "params": params}


def _saved_adapters(workdir: Path) -> LoraConfig:
  """The adapters of a run, as its folder tells; none if it does not."""
  return LoraConfig(**(read_config(workdir) or {}).get("lora", {}))


@contextlib.contextmanager
def _checkpoints(workdir: Path) -> Iterator[Checkpoints]:
  if not (workdir / "checkpoints").is_dir():
    raise UserError(f"{workdir} holds no checkpoints; give the folder of a run")
  checkpoints = Checkpoints(workdir, read_only=True)
  try:
    yield checkpoints
  finally:
    checkpoints.close()
