"""A trained policy, read back from the folder of its run."""

import dataclasses
from pathlib import Path

from transformers import PreTrainedTokenizerFast

from pgax.data.tokenizer import load_tokenizer
from pgax.models.decoder import Decoder
from pgax.training.checkpoint import Checkpoints
from pgax.training.config import RunConfig
from pgax.training.errors import UserError
from pgax.training.mesh import make_mesh
from pgax.training.rollout import Sampler
from pgax.training.state import init_state, make_optimizer
from pgax.types import PyTree


@dataclasses.dataclass(frozen=True)
class Policy:
  """What is needed to sample from a checkpoint.

  Attributes:
    params: of the model.
    step: of the checkpoint, warm start included.
    tokenizer: of the model.
    model: the decoder.
  """

  params: PyTree
  step: int
  tokenizer: PreTrainedTokenizerFast
  model: Decoder

  def sampler(self, max_tokens: int) -> Sampler:
    """A sampler of completions of at most `max_tokens` tokens, on all devices."""
    return Sampler(self.model, self.tokenizer, make_mesh(), max_tokens)


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
  model, mesh = Decoder(config.model), make_mesh()
  if not (workdir / "tokenizer").is_dir():
    raise UserError(f"{workdir} has no folder 'tokenizer'; give the folder of a run")
  optimizer = make_optimizer(config.optimizer)
  like = init_state(model, config.algorithm, optimizer, mesh, config.seed)
  checkpoints = Checkpoints(workdir, config.keep_checkpoints)
  try:
    state, _ = checkpoints.restore(like)
  finally:
    checkpoints.close()
  tokenizer = load_tokenizer(workdir / "tokenizer")
  return Policy(state.params, int(state.step), tokenizer, model)
