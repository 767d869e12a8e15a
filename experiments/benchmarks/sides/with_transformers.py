"""transformers: `generate`, and a GRPO update in torch, on the same weights as pgax.

The update computes what pgax's step does: log-probabilities of the reference, group
advantages, the clipped surrogate with a KL penalty, its gradient, gradient clipping, AdamW,
on full sequences one after the other.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import transformers
from transformers import AutoModelForCausalLM

from experiments.benchmarks.shape import Shape
from experiments.benchmarks.worker import Call, Work, serve

Model = torch.nn.Module


def load(folder: Path, shape: Shape) -> Model:
  """Loads the weights that pgax wrote, in evaluation mode."""
  torch.set_num_threads(shape.cores)
  model = AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float32)
  if shape.remat:
    model.gradient_checkpointing_enable()
  return model.eval()


def build(shape: Shape, names: tuple[str, ...], folder: Path) -> Work:
  """Builds `generate` and `update`.

  Args:
    shape: sizes of model and batch.
    names: names of the calls to build.
    folder: folder with weights and batch.

  Returns:
    The `Work`.
  """
  model = load(folder, shape)
  batch = {name: torch.tensor(x) for name, x in np.load(folder / "batch.npz").items()}
  makers = {"generate": _make_generate, "update": _make_update}
  calls = {k: make(shape, model, batch) for k, make in makers.items() if k in names}
  versions = {"torch": torch.__version__, "transformers": transformers.__version__}
  params = sum(x.numel() for x in model.parameters())
  return Work(calls, {"params": params, "versions": versions})


def _make_generate(shape: Shape, model: Model, batch: dict[str, torch.Tensor]) -> Call:
  """Makes a function that samples completions of full length."""
  ids = batch["prompts"].long()
  settings = model.generation_config
  settings.eos_token_id, settings.pad_token_id = None, 0
  size = (shape.rows, shape.prompt_len + shape.gen_len)

  @torch.no_grad()
  def generate() -> None:
    output = model.generate(
      ids,
      attention_mask=torch.ones_like(ids),
      do_sample=True,
      top_k=0,
      num_return_sequences=shape.group,
      max_new_tokens=shape.gen_len,
    )
    if output.shape != size:
      raise RuntimeError(f"generate returned {tuple(output.shape)} instead of {size}")

  return generate


def _logp(model: Model, rows: torch.Tensor, length: int) -> torch.Tensor:
  """Computes the log-probabilities of the last `length` tokens of each row."""
  logits = model(rows, logits_to_keep=length + 1).logits[:, :-1]
  picked = logits.gather(-1, rows[:, -length:, None])[..., 0]
  return picked - logits.logsumexp(-1)


def sequences(batch: dict[str, torch.Tensor]) -> torch.Tensor:
  """Joins each completion to its prompt: `[N * G, P + T]`."""
  completions = batch["completions"].long()
  repeated = batch["prompts"].long()[:, None].expand(-1, completions.shape[1], -1)
  return torch.cat([repeated, completions], dim=-1).flatten(0, 1)


def group_advantages(batch: dict[str, torch.Tensor]) -> torch.Tensor:
  """Normalizes rewards within each group: `[N * G]`."""
  scores = batch["rewards"]
  centered = scores - scores.mean(-1, keepdim=True)
  return (centered / (scores.std(-1, keepdim=True, correction=0) + 1e-6)).flatten()


def make_optimizer_step(shape: Shape, model: Model) -> Callable[[], float]:
  """Makes a function that clips the gradient, takes an AdamW step and returns the norm."""
  adamw = torch.optim.AdamW(
    model.parameters(), lr=shape.lr, betas=(0.9, 0.95), weight_decay=0.0
  )

  def step() -> float:
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    adamw.step()
    adamw.zero_grad()
    return float(norm)

  return step


def _make_update(shape: Shape, model: Model, batch: dict[str, torch.Tensor]) -> Call:
  """Makes a function that updates the model in place and returns the gradient norm."""
  rows, advantages = sequences(batch), group_advantages(batch)[:, None]
  frozen = None
  if shape.beta:
    frozen = AutoModelForCausalLM.from_config(model.config).eval()
    frozen.load_state_dict(model.state_dict())
  step = make_optimizer_step(shape, model)

  def loss(part: torch.Tensor, advantage: torch.Tensor) -> torch.Tensor:
    now = _logp(model, part, shape.gen_len)
    # One update per rollout: the policy before it is the policy of this pass.
    ratio = torch.exp(now - now.detach())
    clipped = torch.clamp(ratio, 0.8, 1.2)
    per_token = -torch.minimum(ratio * advantage, clipped * advantage)
    if frozen is not None:
      with torch.no_grad():
        away = _logp(frozen, part, shape.gen_len)
      away = away - now
      per_token = per_token + shape.beta * (torch.exp(away) - away - 1)
    return per_token.sum() / (shape.rows * shape.gen_len)

  def update() -> float:
    parts = zip(rows.chunk(shape.micro), advantages.chunk(shape.micro), strict=True)
    for part, advantage in parts:
      loss(part, advantage).backward()
    return step()

  return update


if __name__ == "__main__":
  serve(build)
