"""Trained policies: read from the folder of a run, and exported."""

import dataclasses
import shutil
from pathlib import Path

from jax.sharding import Mesh
from transformers import PreTrainedTokenizerFast

from pgax.data.tokenizer import load_tokenizer
from pgax.distributed.hosts import on_writer
from pgax.distributed.mesh import make_mesh
from pgax.distributed.partitioning import param_shardings
from pgax.errors import UserError
from pgax.learner.state import abstract_policy
from pgax.models import DecoderConfig, ScalarDecoder, hf, lora
from pgax.models.decoder import Decoder
from pgax.models.lora import LoraConfig
from pgax.rollout.sampler import Sampler, make_sampler
from pgax.runs.checkpoint import read_checkpoints
from pgax.runs.workdir import read_config
from pgax.training.config import RunConfig
from pgax.training.progress import Progress
from pgax.types import PyTree


@dataclasses.dataclass(frozen=True)
class Policy:
  """A policy from a checkpoint, with everything that sampling from it takes.

  Attributes:
    params: parameters of the decoder, adapters merged.
    progress: stage and step of the checkpoint.
    tokenizer: tokenizer of the model.
    model: the decoder.
    mesh: mesh of devices, laid out as in the run.
    sampler: samples completions with the settings of the run.
  """

  params: PyTree
  progress: Progress
  tokenizer: PreTrainedTokenizerFast
  model: Decoder
  mesh: Mesh
  sampler: Sampler


def load_policy(config: RunConfig, workdir: Path) -> Policy:
  """Reads the policy of a run's latest checkpoint.

  Args:
    config: configuration of the run.
    workdir: folder of the run.

  Returns:
    A `Policy`.

  Raises:
    UserError: if the folder has no checkpoint or tokenizer, or the checkpoint does not fit
      the configuration.
  """
  if not (workdir / "tokenizer").is_dir():
    raise UserError(f"{workdir} has no folder 'tokenizer'; give the folder of a run")
  model, mesh = Decoder(config.model), make_mesh(config.mesh)
  params = load_params(model, mesh, workdir, config.lora)
  with read_checkpoints(workdir) as checkpoints:
    progress = Progress.from_json(checkpoints.restore_data())
  tokenizer = load_tokenizer(workdir / "tokenizer")
  ids = eos_ids(config.model_path, tokenizer)
  sampler = make_sampler(config.sampling, model, tokenizer, mesh, ids)
  return Policy(params, progress, tokenizer, model, mesh, sampler)


def eos_ids(model_path: str, tokenizer: PreTrainedTokenizerFast) -> tuple[int, ...]:
  """Collects the tokens that end a completion.

  Args:
    model_path: directory of the model in transformers' format; empty for none.
    tokenizer: tokenizer of the model.

  Returns:
    Ids of the tokenizer's EOS and of those that the model's files name.
  """
  named = hf.eos_ids(Path(model_path)) if model_path else ()
  return tuple(sorted({tokenizer.eos_token_id, *named} - {None}))


def export_dtype(source: Path | None) -> str:
  """Returns the dtype of an export: that of the source's files if it can be written."""
  dtype = hf.saved_dtype(source) if source else "float32"
  return dtype if dtype in hf.DTYPES else "float32"


def export_policy(
  config: DecoderConfig,
  params: PyTree,
  tokenizer: PreTrainedTokenizerFast,
  source: Path,
  folder: Path,
) -> None:
  """Writes a policy in the format of the directory that it came from.

  transformers and vLLM read it.

  Args:
    config: configuration of the decoder.
    params: its parameters, adapters merged.
    tokenizer: tokenizer of the model.
    source: directory that the model was loaded from.
    folder: directory to write; an earlier export in it is replaced.
  """
  on_writer(lambda: shutil.rmtree(folder, ignore_errors=True))
  hf.save(folder, config, params, tokenizer, source, export_dtype(source))


def load_params(
  model: Decoder, mesh: Mesh, workdir: Path, adapters: LoraConfig | None = None
) -> PyTree:
  """Reads the policy's parameters of a run's latest checkpoint, adapters merged.

  Args:
    model: decoder that they are for.
    mesh: mesh of devices.
    workdir: folder of the run.
    adapters: settings of the run's adapters; None reads them from its `config.json`.

  Returns:
    Parameters of the decoder.

  Raises:
    UserError: if there is no checkpoint, or it does not fit the model.
  """
  adapters = _saved_adapters(workdir) if adapters is None else adapters
  with read_checkpoints(workdir) as checkpoints:
    fields = checkpoints.restore_fields(_fields(model, adapters, mesh))
  return lora.merged(adapters, fields["base"], fields["params"])


def is_reward_model(folder: Path) -> bool:
  """Returns whether a folder is a model in transformers' format, and not that of a run."""
  return "architectures" in (read_config(folder) or {})


def load_critic(config: DecoderConfig, mesh: Mesh, folder: Path) -> PyTree:
  """Reads a reward model as a critic, with its head.

  Args:
    config: configuration of the policy's decoder, which is the critic's.
    mesh: mesh of devices.
    folder: directory of the reward model.

  Returns:
    Parameters of a `ScalarDecoder`.

  Raises:
    UserError: if the decoders differ; see `check_critic`.
  """
  decoder = check_critic(config, folder)
  shardings = param_shardings(ScalarDecoder(decoder), mesh)
  return hf.load_reward_model(folder, decoder, shardings)


def check_critic(config: DecoderConfig, folder: Path) -> DecoderConfig:
  """Checks that a reward model can be the critic of a policy.

  Args:
    config: configuration of the policy's decoder.
    folder: directory of the reward model.

  Returns:
    Configuration of the reward model's decoder.

  Raises:
    UserError: if the decoders differ in more than how they compute.
  """
  decoder = hf.load_reward_model_config(folder)
  hf.check_reward_model(folder, decoder)
  free = {"dtype", "attention", "remat", "tie_embeddings"}  # a critic has no unembedding
  for name in vars(config).keys() - free:
    ours, theirs = getattr(config, name), getattr(decoder, name)
    if ours != theirs:
      raise UserError(
        f"model.{name} is {theirs} in the reward model {folder} and {ours} in this run; "
        "the critic has the policy's decoder, so both must be the same"
      )
  return decoder


def check_params(model: Decoder, mesh: Mesh, workdir: Path) -> None:
  """Checks by shapes alone that `load_params` will work; raises what it would."""
  with read_checkpoints(workdir) as checkpoints:
    checkpoints.check_fields(_fields(model, _saved_adapters(workdir), mesh))


def _fields(model: Decoder, adapters: LoraConfig, mesh: Mesh) -> dict[str, PyTree]:
  base, params = abstract_policy(model, adapters, mesh)
  return {"base": base, "params": params}


def _saved_adapters(workdir: Path) -> LoraConfig:
  """Settings of the adapters in a run's `config.json`; no adapters if it has none."""
  saved = (read_config(workdir) or {}).get("lora", {})
  try:
    return LoraConfig(**saved)
  except (TypeError, ValueError) as error:
    raise UserError(f"the config.json of {workdir} has lora={saved}: {error}") from None
