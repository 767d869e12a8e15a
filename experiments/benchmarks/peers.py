"""The same model and the same work in transformers and torch."""

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM

from experiments.benchmarks.workload import CONFIG, GROUP, NEW_TOKENS
from pgax.learner import OptimizerConfig
from pgax.models import hf
from pgax.types import Array, PyTree


def load(params: PyTree, threads: int) -> torch.nn.Module:
  """Loads the model in transformers, with the same weights.

  Args:
    params: parameters of the workload's model.
    threads: number of threads of torch.

  Returns:
    A causal language model in evaluation mode, float32.
  """
  torch.set_num_threads(threads)
  with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "model"
    hf.save(path, CONFIG, params, tokenizer=None)
    return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()


def generate(model: torch.nn.Module, tokens: Array) -> Callable[[], torch.Tensor]:
  """Makes a function that samples `GROUP` completions of `NEW_TOKENS` for each prompt."""
  ids = torch.tensor(np.asarray(tokens)).long()
  settings = model.generation_config
  settings.eos_token_id = None
  settings.pad_token_id = 0

  @torch.no_grad()
  def call() -> torch.Tensor:
    return model.generate(
      ids,
      attention_mask=torch.ones_like(ids),
      do_sample=True,
      top_k=0,
      num_return_sequences=GROUP,
      max_new_tokens=NEW_TOKENS,
    )

  return call


def make_update(
  model: torch.nn.Module,
  tokens: np.ndarray,
  mask: np.ndarray,
  rewards: np.ndarray,
  *,
  prompt_tokens: int,
  optimizer: OptimizerConfig,
  kl_coef: float,
  microbatches: int,
) -> Callable[[], float]:
  """Makes a GRPO update as trainers in torch do, on full sequences one after the other.

  It computes what pgax's step does: log-probabilities of the policy before the update and
  of the reference, group advantages, the clipped surrogate, the KL penalty, the gradient,
  AdamW.

  Args:
    model: the policy, trained in place.
    tokens: `[N * G, P + T]` int64.
    mask: `[N * G, T]` bool.
    rewards: `[N, G]` float32.
    prompt_tokens: `P`.
    optimizer: settings of AdamW and of the gradient clip; there is no warmup.
    kl_coef: coefficient of the k3 penalty in the loss.
    microbatches: number of microbatches that the gradient is summed over.

  Returns:
    A function that makes a step and returns its gradient norm.
  """
  ids, real = torch.tensor(tokens).long(), torch.tensor(mask)
  scores = torch.tensor(rewards)
  reference = {name: x.detach().clone() for name, x in model.state_dict().items()}
  frozen = AutoModelForCausalLM.from_config(model.config).eval()
  frozen.load_state_dict(reference)
  adamw = torch.optim.AdamW(
    model.parameters(),
    lr=optimizer.learning_rate,
    betas=(optimizer.b1, optimizer.b2),
    weight_decay=optimizer.weight_decay,
  )
  length = ids.shape[1] - prompt_tokens

  def logp(network: torch.nn.Module, rows: torch.Tensor) -> torch.Tensor:
    logits = network(rows, logits_to_keep=length + 1).logits[:, :-1]
    picked = logits.gather(-1, rows[:, prompt_tokens:, None])[..., 0]
    return picked - logits.logsumexp(-1)

  def all_logp(network: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
      return torch.cat([logp(network, rows) for rows in ids.chunk(microbatches)])

  def call() -> float:
    old, anchor = all_logp(model), all_logp(frozen)
    centered = scores - scores.mean(-1, keepdim=True)
    advantages = (centered / (scores.std(-1, keepdim=True, correction=0) + 1e-6)).reshape(
      -1, 1
    )
    weights = real / (real.sum(-1, keepdim=True) * len(ids))
    parts = [x.chunk(microbatches) for x in (ids, old, anchor, advantages, weights)]
    for rows, before, at_start, advantage, weight in zip(*parts, strict=True):
      now = logp(model, rows)
      ratio = torch.exp(now - before)
      clipped = torch.clamp(ratio, 0.8, 1.2)
      per_token = -torch.minimum(ratio * advantage, clipped * advantage)
      away = at_start - now
      penalty = torch.exp(away) - away - 1
      ((per_token + kl_coef * penalty) * weight).sum().backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), optimizer.clip_norm)
    adamw.step()
    adamw.zero_grad()
    return float(norm)

  return call
