"""The losses of presets against the references of polgrad, with its own comparison.

polgrad (on PyPI, Apache-2.0) compares the loss and its gradient on
64 random batches in float64; masked positions hold random numbers.
"""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.conformance.check import Check
from pgax import algorithms
from pgax.algorithms import Algorithm, parts

_RTOL = 1e-9


def checks() -> list[Check]:
  """Compares the surrogate and the weights of presets.

  Returns:
    Two checks an algorithm: the largest relative error of the loss, and of its gradient.

  Raises:
    ModuleNotFoundError: if polgrad or PyTorch is not installed.
  """
  from polgrad import registry  # of the extra `test`
  from polgrad.testing import assert_conforms

  rows = []
  for name, (call, algorithm, changes) in _references().items():
    config = replace(registry.get(name).loss, **changes)
    report = assert_conforms(_torch_loss(algorithm), config)
    for what, error in (
      ("loss", report.max_loss_rel_diff),
      ("gradient", report.max_grad_rel_diff),
    ):
      # The reference is 1, and pgax is the error away from it.
      rows.append(Check(f"{name}, {what}", call, 1.0, 1.0 + error, _RTOL))
  return rows


def _references() -> dict[str, tuple[str, Algorithm, dict[str, Any]]]:
  """Returns pgax's call, the algorithm, and changes of polgrad's configuration."""
  gspo = algorithms.gspo()
  reinforce_pp = algorithms.reinforce_pp()
  cispo = algorithms.cispo(clip_high=0.2)
  return {
    "ppo": ("`ppo`", algorithms.ppo(), {}),
    "grpo": ("`grpo`", algorithms.grpo(), {}),
    "dr_grpo": ("`dr_grpo`, 16 tokens", _dr_grpo(16), {"norm_len": 16}),
    "dapo": ("`dapo`", algorithms.dapo(), {}),
    "gspo": ("`gspo`", gspo, {}),
    "cispo": ("`cispo(clip_high=.2)`", cispo, {}),
    "rloo": ("`rloo`", algorithms.rloo(), {}),
    "reinforce_pp": (
      "`reinforce_pp`, weights of `grpo`",
      replace(reinforce_pp, aggregation=algorithms.grpo().aggregation),
      {},
    ),
  }


def _dr_grpo(length: int) -> Algorithm:
  return replace(algorithms.dr_grpo(), aggregation=parts.FixedLength(length))


def _torch_loss(algorithm: Algorithm) -> Callable[..., Any]:
  """The policy loss of an algorithm, as a PyTorch function of polgrad's arguments."""
  import torch

  def loss(logp, old_logp, advantages, mask):
    batch = SimpleNamespace(
      old_logp=old_logp,
      advantages=jnp.broadcast_to(advantages[:, None], logp.shape),
      loss_mask=mask > 0,
    )
    terms = algorithm.surrogate(logp, batch).loss
    return jnp.sum(jnp.where(mask > 0, algorithm.aggregation(mask) * terms, 0.0))

  value_and_gradient = jax.jit(jax.value_and_grad(loss))

  class Loss(torch.autograd.Function):
    @staticmethod
    def forward(context, logp, *others):
      arrays = [x.detach().double().numpy() for x in (logp, *others)]
      value, gradient = value_and_gradient(*arrays)
      context.gradient = torch.tensor(np.asarray(gradient))
      return torch.tensor(float(value), dtype=torch.float64)

    @staticmethod
    def backward(context, upstream):
      return upstream * context.gradient, None, None, None

  def call(*, logprobs, old_logprobs, advantages, response_mask):
    return Loss.apply(logprobs, old_logprobs, advantages, response_mask)

  return call
