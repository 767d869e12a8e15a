"""TRL: the step of `GRPOTrainer`, on the same weights and batch as pgax.

A step is the trainer's log-probabilities of the reference, its loss and the gradient,
gradient clipping and AdamW. The trainer computes the policy's entropy in every step, too.
It needs `pip install trl datasets`; this program does not import pgax.
"""

import importlib
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
import torch
import transformers

from experiments.benchmarks.shape import Shape
from experiments.benchmarks.sides.with_transformers import (
  group_advantages,
  load,
  make_optimizer_step,
  sequences,
)
from experiments.benchmarks.worker import Call, Work, serve


def build(shape: Shape, names: tuple[str, ...], folder: Path) -> Work:
  """Builds `update`.

  Args:
    shape: sizes of model and batch.
    names: names of the calls to build; others than `update` are ignored.
    folder: folder with weights and batch.

  Returns:
    The `Work`.
  """
  versions = {
    "trl": importlib.import_module("trl").__version__,
    "torch": torch.__version__,
    "transformers": transformers.__version__,
  }
  if "update" not in names:
    return Work({}, {"versions": versions})
  trainer = _make_trainer(shape, folder)
  params = sum(x.numel() for x in trainer.model.parameters())
  batch = {name: torch.tensor(x) for name, x in np.load(folder / "batch.npz").items()}
  facts = {"params": params, "versions": versions}
  return Work({"update": _make_update(shape, trainer, batch)}, facts)


def _tokenizer(shape: Shape) -> transformers.PreTrainedTokenizerFast:
  """Makes a tokenizer with one word for each token; the trainer wants one, and its EOS."""
  words = {f"t{number}": number for number in range(shape.vocab)}
  tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="t1"))
  tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
  return transformers.PreTrainedTokenizerFast(
    tokenizer_object=tokenizer, pad_token="t0", eos_token="t1", unk_token="t1"
  )


def _make_trainer(shape: Shape, folder: Path) -> Any:
  """Builds the trainer, which loads its reference from the folder as well."""
  trl = importlib.import_module("trl")
  datasets = importlib.import_module("datasets")
  settings = trl.GRPOConfig(
    output_dir=tempfile.mkdtemp(dir=folder),
    use_cpu=True,
    bf16=False,
    report_to="none",
    per_device_train_batch_size=shape.rows // shape.micro,
    gradient_accumulation_steps=shape.micro,
    num_generations=shape.group,
    max_completion_length=shape.gen_len,
    beta=shape.beta,
    loss_type="grpo",
    learning_rate=shape.lr,
    gradient_checkpointing=shape.remat,
    max_steps=1,
    disable_tqdm=True,
  )
  return trl.GRPOTrainer(
    model=load(folder, shape),
    reward_funcs=lambda completions, **_: [0.0] * len(completions),
    args=settings,
    train_dataset=datasets.Dataset.from_dict({"prompt": ["t1"] * shape.prompts}),
    processing_class=_tokenizer(shape),
  )


def _inputs(shape: Shape, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
  """Arranges the batch as the trainer's loss takes it."""
  rows = sequences(batch)
  prompts, completions = rows.split([shape.prompt_len, shape.gen_len], dim=1)
  return {
    "prompt_ids": prompts,
    "prompt_mask": torch.ones_like(prompts),
    "completion_ids": completions,
    "completion_mask": torch.ones_like(completions),
    "advantages": group_advantages(batch),
  }


def _make_update(shape: Shape, trainer: Any, batch: dict[str, torch.Tensor]) -> Call:
  """Makes a function that updates the trainer's model and returns the gradient norm."""
  inputs, model = _inputs(shape, batch), trainer.model
  rows = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
  size, seen = shape.rows // shape.micro, torch.ones_like(rows)
  trainer.current_gradient_accumulation_steps = shape.micro
  step = make_optimizer_step(shape, model)
  model.train()

  def update() -> float:
    if shape.beta:
      with torch.no_grad():
        inputs["ref_per_token_logps"], *_ = trainer._get_per_token_logps_and_entropies(
          trainer.ref_model, rows, seen, shape.gen_len, batch_size=size
        )
    for start in range(0, shape.rows, size):
      part = {name: x[start : start + size] for name, x in inputs.items()}
      trainer._compute_loss(model, part).backward()
    return step()

  return update


if __name__ == "__main__":
  serve(build)
