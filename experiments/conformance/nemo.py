"""The golden losses and gradients of NVIDIA NeMo RL's `ClippedPGLossFn`, in float64."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.conformance.check import Check
from pgax.ops import aggregation, correction, kl, masking, surrogates
from pgax.types import Array

GOLDENS = Path("tests/data/nemo_rl/clipped_pg_loss_goldens.json")
# NeMo divides by the number of tokens plus this, to avoid a division by 0.
_EPS = 1e-8


class Inputs(NamedTuple):
  """Arrays `[batch, length]` of a case, float64; rewards are `[batch]`."""

  advantages: Array
  old_logp: Array
  sample_logp: Array
  ref_logp: Array
  mask: Array
  rewards: Array


def checks(root: Path) -> list[Check]:
  """Compares loss and gradient of every case.

  Args:
    root: folder of the repository.

  Returns:
    Two checks a case: the loss, and its gradient.
  """
  goldens = json.loads((root / GOLDENS).read_text())
  return [
    check for case in goldens["cases"] for check in _compare(case, goldens["base_inputs"])
  ]


def _compare(case: dict, base: dict) -> list[Check]:
  """Computes a case with pgax."""
  raw = {name: np.asarray(x, np.float64) for name, x in base.items()}
  raw |= {name: np.asarray(x, np.float64) for name, x in case["input_overrides"].items()}
  names = ("advantages", "prev_logprobs", "generation_logprobs")
  shifted = [raw[x][:, 1:] for x in (*names, "reference_policy_logprobs", "token_mask")]
  inputs = Inputs(*map(jnp.asarray, (*shifted, raw["rewards"])))
  logps = [raw[x] for x in ("next_token_logprobs", "curr_logprobs_unfiltered") if x in raw]
  call, function = _CASES[case["name"]]
  arguments = [jnp.asarray(x) for x in logps]
  positions = tuple(range(len(arguments)))
  loss, gradients = jax.value_and_grad(
    lambda *logp: function(inputs, *logp), argnums=positions
  )(*arguments)
  expected = case["expected"]
  # In GSPO that addend is in the mean of the log-ratios, too.
  rtol = 1e-8 if case["name"] == "gspo_sequence_is" else 1e-12
  rows = [Check(case["name"], call, expected["loss"], loss, rtol)]
  for name, gradient in zip(expected["gradients"], gradients, strict=True):
    title = f"{case['name']}, gradient at `{name}`"
    rows.append(Check(title, call, expected["gradients"][name], gradient, rtol))
  return rows


def _over_tokens(inputs: Inputs, terms: Array) -> Array:
  """A mean over tokens with NeMo's divisor."""
  total = jnp.sum(inputs.mask)
  mean = jnp.sum(aggregation.token_mean(inputs.mask) * terms)
  return mean * total / (total + _EPS)


def _over_sequences(inputs: Inputs, terms: Array) -> Array:
  """A mean over tokens, then over sequences, with NeMo's divisors."""
  lengths = masking.lengths(inputs.mask)[:, None]
  rows = len(inputs.mask)
  weights = aggregation.sequence_mean(inputs.mask) * lengths / (lengths + _EPS)
  return jnp.sum(weights * terms) * rows / (rows + _EPS)


def _clipped(inputs: Inputs, logp: Array, dual_clip: float | None = None) -> Array:
  return surrogates.clipped(
    logp, inputs.old_logp, inputs.advantages, 0.2, 0.2, dual_clip
  ).loss


def _weighted(weights: Callable[[Inputs], Array]) -> Callable[[Inputs, Array], Array]:
  """The clipped surrogate, times weights that correct for the sampler."""
  return lambda inputs, logp: _over_tokens(inputs, weights(inputs) * _clipped(inputs, logp))


def _on_policy(inputs: Inputs, logp: Array) -> Array:
  old_logp = jax.lax.stop_gradient(logp)
  return _over_tokens(inputs, surrogates.clipped(logp, old_logp, inputs.advantages).loss)


def _cispo(inputs: Inputs, logp: Array) -> Array:
  loss = surrogates.cispo(logp, inputs.old_logp, inputs.advantages, 0.2, 0.2).loss
  return _over_tokens(inputs, _ratio(inputs) * loss)


def _with_kl(inputs: Inputs, logp: Array, unfiltered: Array) -> Array:
  estimate = kl.k3_importance_weighted(unfiltered, inputs.ref_logp, inputs.sample_logp)
  return _over_tokens(inputs, _clipped(inputs, logp) + 0.17 * estimate)


def _ratio(inputs: Inputs) -> Array:
  return correction.truncated(inputs.old_logp, inputs.sample_logp, cap=float("inf"))


def _near_in_the_mean(inputs: Inputs) -> Array:
  """Token ratios, 0 in sequences whose geometric mean is out of bounds."""
  log_ratio = inputs.old_logp - inputs.sample_logp
  mean = masking.masked_mean(log_ratio, inputs.mask, -1)[:, None]
  kept = correction.icepop(mean, jnp.zeros_like(mean), low=0.95, high=1.15) > 0
  return _ratio(inputs) * kept


def _gspo(inputs: Inputs, logp: Array) -> Array:
  loss = surrogates.gspo(
    logp, inputs.old_logp, inputs.advantages, inputs.mask, 0.2, 0.2
  ).loss
  weights = correction.sequence(
    inputs.old_logp, inputs.sample_logp, inputs.mask, float("inf")
  )
  return _over_sequences(inputs, weights * loss)


def _with_nll(inputs: Inputs, logp: Array) -> Array:
  right = inputs.mask * (inputs.rewards > 0)[:, None]
  count = jnp.sum(right)
  nll = jnp.sum(aggregation.token_mean(right) * -logp) * count / (count + _EPS)
  return _over_tokens(inputs, _clipped(inputs, logp)) + 0.3 * nll


# The call in pgax, and the function of a case.
_CASES = {
  "ppo_token": (
    "`surrogates.clipped`, `token_mean`",
    lambda inputs, logp: _over_tokens(inputs, _clipped(inputs, logp)),
  ),
  "force_on_policy": ("`surrogates.clipped` at `old_logp = logp`", _on_policy),
  "reinforce": (
    "`surrogates.policy_gradient`",
    lambda inputs, logp: _over_tokens(
      inputs, surrogates.policy_gradient(logp, inputs.advantages).loss
    ),
  ),
  "dual_clip": (
    "`surrogates.clipped(dual_clip=3)`",
    lambda inputs, logp: _over_tokens(inputs, _clipped(inputs, logp, 3.0)),
  ),
  "cispo_with_token_is": ("`surrogates.cispo`, `correction.truncated(cap=inf)`", _cispo),
  "kl_on_policy_unfiltered": (
    "`surrogates.clipped`, `kl.k3_importance_weighted`",
    _with_kl,
  ),
  "tis_token": (
    "`surrogates.clipped`, `correction.truncated(cap=1.3)`",
    _weighted(lambda x: correction.truncated(x.old_logp, x.sample_logp, 1.3)),
  ),
  "icepop_token": (
    "`surrogates.clipped`, `correction.icepop(low=.75, high=1.25)`",
    _weighted(lambda x: correction.icepop(x.old_logp, x.sample_logp, 0.75, 1.25)),
  ),
  "seq_mask_tis": (
    "`surrogates.clipped`, `correction.icepop` of the mean log-ratio",
    _weighted(_near_in_the_mean),
  ),
  "gspo_sequence_is": ("`surrogates.gspo`, `correction.sequence(cap=inf)`", _gspo),
  "vapo_mixed_rewards": ("`surrogates.clipped`, negative log-likelihood", _with_nll),
  "vapo_no_positive_rewards": ("`surrogates.clipped`, negative log-likelihood", _with_nll),
}
