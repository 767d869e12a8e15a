"""A trained policy, read back from the folder of its run."""

import dataclasses
from pathlib import Path

from jax.sharding import Mesh
from transformers import PreTrainedTokenizerFast

from pgax.data.tokenizer import load_tokenizer
from pgax.models.decoder import Decoder
from pgax.training.checkpoint import Checkpoints
from pgax.training.config import RunConfig
from pgax.training.errors import UserError
from pgax.training.mesh import make_mesh
from pgax.training.rollout import Sampler
from pgax.training.state import abstract_state, make_optimizer
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
  """

  params: PyTree
  step: int
  tokenizer: PreTrainedTokenizerFast
  model: Decoder
  mesh: Mesh

  def sampler(self, max_tokens: int) -> Sampler:
    """A sampler of completions of at most `max_tokens` tokens."""
    return Sampler(self.model, self.tokenizer, self.mesh, max_tokens)


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
  like = abstract_state(model, config.algorithm, make_optimizer(config.optimizer), mesh)
  checkpoints = Checkpoints(workdir, read_only=True)
  try:
    state, _ = checkpoints.restore(like)
  finally:
    checkpoints.close()
  return Policy(
    params=state.params,
    step=int(state.step) - config.warm_start.steps,
    tokenizer=load_tokenizer(workdir / "tokenizer"),
    model=model,
    mesh=mesh,
  )
