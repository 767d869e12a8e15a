"""One call of every public op, and other values of each of its settings.

`CALLS` gives the arguments of a call by name; arrays have a leading axis of prompts, and
what is not an array is a setting. `OTHERS` gives, for every setting, values that must
change the result. A setting is a parameter with a default, or one that is not an array.
"""

import inspect
from types import ModuleType

import jax
import numpy as np

from pgax.ops import (
  advantages,
  aggregation,
  correction,
  entropy,
  evaluation,
  kl,
  logprobs,
  masking,
  preferences,
  returns,
  shaping,
  surrogates,
  values,
)

MODULES = {
  module.__name__.rpartition(".")[2]: module
  for module in (
    advantages,
    aggregation,
    correction,
    entropy,
    evaluation,
    kl,
    logprobs,
    masking,
    preferences,
    preferences,
    returns,
    shaping,
    surrogates,
    values,
  )
}

RNG = np.random.default_rng(1)


def _normal(*shape: int) -> np.ndarray:
  return RNG.normal(size=shape).astype(np.float32)


N, G, T, S, V = 2, 4, 5, 3, 6
X, Y, Z = (-np.abs(_normal(N, G, T)) for _ in range(3))  # log-probabilities
ADVANTAGES, R, GREEDY = _normal(N, G, T), _normal(N, G), _normal(N)
VALID = np.array([[1, 1, 0, 1], [1, 0, 1, 1]], bool)
LENGTHS = np.array([[1, 5, 2, 4], [3, 1, 5, 5]])
MASK = np.arange(T) < LENGTHS[..., None]
LOGITS, REF_LOGITS = _normal(2, N, G, V)
LOG_PROBS = LOGITS - np.log(np.exp(LOGITS).sum(-1, keepdims=True))
PER_TOKEN = {"rewards": _normal(N, G, T), "values": _normal(N, G, T), "mask": MASK}
OLD = {"logp": X, "old_logp": Y}
TOKENS = {**OLD, "advantages": ADVANTAGES}
SEQUENCES = {**TOKENS, "mask": MASK}
COMPLETIONS = {**OLD, "rewards": R, "mask": MASK}
REFERENCE = {"logp": X, "ref_logp": Z}
SAMPLER = {"old_logp": X, "sample_logp": Y}

CALLS = {
  "advantages.batch_mean": {"rewards": R},
  "advantages.batch_scaled": {"rewards": R},
  "advantages.gdpo": {"components": _normal(N, G, S)},
  "advantages.rloo": {"rewards": R},
  "advantages.grpo": {"rewards": R},
  "advantages.dr_grpo": {"rewards": R},
  "advantages.remax": {"rewards": R, "greedy_rewards": GREEDY},
  "advantages.opo": {"rewards": R, "lengths": LENGTHS},
  "advantages.maxrl": {"rewards": np.abs(R)},
  "advantages.moving_average": {"rewards": R, "baseline": 0.3, "rate": 0.2},
  "advantages.grpo_process": {
    "step_rewards": _normal(N, G, S),
    "step_mask": np.arange(S) < LENGTHS[..., None],
    "step_ends": RNG.integers(0, T, (N, G, S)),
    "mask": MASK,
  },
  "advantages.whiten": {"x": ADVANTAGES, "mask": MASK},
  "advantages.reinforce_pp": {"rewards": R, "token_kl": X - Z, "mask": MASK},
  "advantages.at_last_token": {"rewards": R, "mask": MASK},
  "aggregation.sequence_mean": {"mask": MASK},
  "aggregation.token_mean": {"mask": MASK},
  "aggregation.fixed_length": {"mask": MASK, "max_length": 7},
  "aggregation.sequence_sum": {"mask": MASK},
  "correction.truncated": SAMPLER,
  "correction.icepop": SAMPLER,
  "correction.sequence": {**SAMPLER, "mask": MASK},
  "correction.effective_sample_size": {"weights": np.exp(X), "mask": MASK},
  "entropy.top_fraction": {"entropy": -X, "mask": MASK, "fraction": 0.3},
  "evaluation.pass_at_k": {"right": R > 0, "valid": VALID, "k": 2},
  "evaluation.bootstrap": {"values": X[:, 0], "key": jax.random.key(0)},
  "kl.k1": REFERENCE,
  "kl.k2": REFERENCE,
  "kl.k3": REFERENCE,
  "kl.k3_importance_weighted": {**REFERENCE, "old_logp": Y},
  "kl.exact": {"logits": LOGITS, "ref_logits": REF_LOGITS},
  "logprobs.log_softmax": {"logits": LOGITS},
  "logprobs.token_logp": {"log_probs": LOG_PROBS, "tokens": LENGTHS},
  "logprobs.entropy": {"log_probs": LOG_PROBS},
  "masking.select": {"x": X, "mask": MASK},
  "masking.masked_sum": {"x": X, "mask": MASK},
  "masking.masked_mean": {"x": X, "mask": MASK},
  "masking.lengths": {"mask": MASK},
  "preferences.bradley_terry": {"chosen": R, "rejected": np.flip(R)},
  "returns.discounted_returns": {"rewards": X, "mask": MASK},
  "returns.total_return": {"rewards": X, "mask": MASK},
  "returns.td_errors": PER_TOKEN,
  "returns.n_step_advantages": {**PER_TOKEN, "n": 2},
  "returns.gae": PER_TOKEN,
  "returns.lambda_returns": {"advantages": ADVANTAGES, "values": Y, "mask": MASK},
  "returns.length_adaptive_lambda": {"lengths": 30 * LENGTHS},
  "shaping.missing_eos": {"rewards": R, "finished": VALID, "penalty": 0.5},
  "shaping.overlong": {"lengths": LENGTHS, "max_length": 5, "buffer": 2},
  "shaping.rescale": {"rewards": R, "low": -1.0, "high": 2.0},
  "shaping.clip": {"rewards": R, "low": -0.5, "high": 0.5},
  "surrogates.ratio": OLD,
  "surrogates.policy_gradient": {"logp": X, "advantages": ADVANTAGES},
  "surrogates.unclipped": TOKENS,
  "surrogates.clipped": TOKENS,
  "surrogates.cispo": {**TOKENS, "clip_low": 0.2, "clip_high": 0.2},
  "surrogates.sapo": TOKENS,
  "surrogates.dppo": TOKENS,
  "surrogates.gspo": {**SEQUENCES, "clip_low": 0.2, "clip_high": 0.2},
  "surrogates.gspo_token": {**SEQUENCES, "clip_low": 0.2, "clip_high": 0.2},
  "surrogates.gmpo": SEQUENCES,
  "surrogates.a_lol": {**REFERENCE, "advantages": ADVANTAGES, "mask": MASK},
  "surrogates.mdpo": {**TOKENS, "step_size": 0.5},
  "surrogates.mdpo_kimi": {**OLD, "advantages": R, "mask": MASK, "tau": 0.5},
  "surrogates.tpo": {**OLD, "advantages": R, "mask": MASK},
  "surrogates.p3o": COMPLETIONS,
  "surrogates.copg": {**REFERENCE, "rewards": R, "mask": MASK, "beta": 0.5},
  "values.value_loss": {"values": X, "old_values": Y, "targets": Z},
  "values.binary_value_loss": {"logits": X, "targets": np.exp(Y)},
}

_VALID = {"valid": [VALID]}
_STANDARD = {"ddof": [1], "eps": [0.5]}
_BOUNDS = {"clip_low": [0.0], "clip_high": [0.0]}
_DISCOUNT = {"discount": [0.5, np.full((N, G), 0.7, np.float32)]}
_CRITIC = {**_DISCOUNT, "bootstrap": [1.0, R]}
OTHERS = {
  "advantages.batch_mean": _VALID,
  "advantages.batch_scaled": {**_VALID, **_STANDARD},
  "advantages.gdpo": {**_VALID, "eps": [0.5], "weights": [(1.0, 2.0, 0.5)]},
  "advantages.rloo": _VALID,
  "advantages.grpo": {**_VALID, **_STANDARD},
  "advantages.dr_grpo": _VALID,
  "advantages.opo": _VALID,
  "advantages.maxrl": _VALID,
  "advantages.moving_average": {**_VALID, "baseline": [0.6], "rate": [0.0, 1.0]},
  "advantages.grpo_process": _STANDARD,
  "advantages.whiten": {**_STANDARD, "shift_mean": [False]},
  "advantages.reinforce_pp": {
    **_VALID,
    "kl_coef": [0.5],
    "group_baseline": [True],
    "discount": [0.5],
  },
  "aggregation.fixed_length": {"max_length": [9], "sequences": [np.float32(50)]},
  "aggregation.sequence_sum": {"sequences": [np.float32(50)]},
  "correction.truncated": {"cap": [1.0]},
  "correction.icepop": {"low": [0.9], "high": [1.1]},
  "correction.sequence": {"cap": [1.0]},
  "entropy.top_fraction": {"fraction": [0.7, 1.0]},
  "evaluation.pass_at_k": {"k": [1]},
  "evaluation.bootstrap": {
    "key": [jax.random.key(1)],
    "level": [0.5],
    "resamples": [10],
  },
  "logprobs.log_softmax": {"temperature": [0.5]},
  "masking.select": {"fill": [1.0]},
  "masking.masked_sum": {"axis": [-1, (0, 1)]},
  "masking.masked_mean": {"axis": [-1, (0, 1)]},
  "returns.discounted_returns": _DISCOUNT,
  "returns.total_return": _DISCOUNT,
  "returns.td_errors": _CRITIC,
  "returns.n_step_advantages": {**_CRITIC, "n": [1, 3]},
  "returns.gae": {**_CRITIC, "lam": [0.0, 1.0, np.full((N, G), 0.5, np.float32)]},
  "returns.length_adaptive_lambda": {"alpha": [0.1]},
  "shaping.missing_eos": {"penalty": [1.0], "replace": [True]},
  "shaping.overlong": {"max_length": [4], "buffer": [1]},
  "shaping.rescale": {"low": [0.0], "high": [1.0]},
  "shaping.clip": {"low": [0.0], "high": [0.1]},
  "surrogates.clipped": {**_BOUNDS, "dual_clip": [1.1]},
  "surrogates.cispo": _BOUNDS,
  "surrogates.sapo": {"tau_pos": [2.0], "tau_neg": [2.0]},
  "surrogates.dppo": {"delta": [0.05]},
  "surrogates.gspo": _BOUNDS,
  "surrogates.gspo_token": _BOUNDS,
  "surrogates.gmpo": {"clip": [0.1]},
  "surrogates.a_lol": {"clip": [0.1], "importance": ["token", "none"]},
  "surrogates.mdpo": {"step_size": [2.0]},
  "surrogates.mdpo_kimi": {"tau": [2.0]},
  "surrogates.tpo": {"eta": [0.5]},
  "surrogates.p3o": {"clip": [0.8], "form": ["joint"]},
  "surrogates.copg": {"beta": [2.0]},
  "values.value_loss": {"clip": [0.6, None]},
}


def public_functions(module: ModuleType) -> dict:
  """Functions that a module (or, for a package, its `__all__`) offers."""
  names = getattr(module, "__all__", None) or [
    name
    for name, thing in vars(module).items()
    if inspect.isfunction(thing) and thing.__module__ == module.__name__
  ]
  return {name: getattr(module, name) for name in names if not name.startswith("_")}


FUNCTIONS = {
  f"{short}.{name}": function
  for short, module in MODULES.items()
  for name, function in public_functions(module).items()
}
