"""Everything that decides the training of a reward model, as a frozen dataclass."""

import dataclasses

from pgax.data.preferences import Preferences
from pgax.models.config import DecoderConfig
from pgax.training.config import MeshConfig
from pgax.training.optimizer_config import OptimizerConfig


@dataclasses.dataclass(frozen=True)
class PreferenceConfig:
  """The training of a reward model on preference pairs.

  Attributes:
    name: what to call the run in its progress bar.
    data: pairs to train on and to be judged by.
    model: shape of the scorer's decoder; one that transformers has, for the export.
    model_path: directory of a language model as transformers saves it, whose weights the
      decoder starts from and whose shape `model` is; empty for fresh weights. The head
      starts at zero.
    optimizer: of the scorer.
    mesh: layout of the devices.
    seed: of everything random.
    steps: optimizer steps.
    batch_size: pairs in a step.
    max_prompt_tokens: limit of a prompt's length.
    max_tokens: limit of a completion's length, EOS included.
    eval_every: steps between evaluations; there is one after the last step.
    eval_pairs: number of held-out pairs in an evaluation.
    checkpoint_every: steps between checkpoints.
    keep_checkpoints: how many of the last ones stay.
  """

  name: str
  data: Preferences
  model: DecoderConfig = DecoderConfig(scale_embeddings=False)
  model_path: str = ""
  optimizer: OptimizerConfig = OptimizerConfig(learning_rate=1e-3)
  mesh: MeshConfig = MeshConfig()
  seed: int = 0
  steps: int = 200
  batch_size: int = 32
  max_prompt_tokens: int = 9
  max_tokens: int = 40
  eval_every: int = 50
  eval_pairs: int = 512
  checkpoint_every: int = 100
  keep_checkpoints: int = 2

  def __post_init__(self):
    least_one = (
      "batch_size",
      "max_prompt_tokens",
      "max_tokens",
      "eval_every",
      "eval_pairs",
    )
    saving = ("checkpoint_every", "keep_checkpoints")
    minima = {"seed": 0, "steps": 0} | dict.fromkeys(least_one + saving, 1)
    for name, minimum in minima.items():
      if vars(self)[name] < minimum:
        raise ValueError(f"{name} is {vars(self)[name]}; it must be at least {minimum}")
