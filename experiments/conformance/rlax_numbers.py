"""The worked numbers of rlax's tests (github.com/google-deepmind/rlax)."""

import jax.numpy as jnp
import numpy as np

from experiments.conformance.check import Check
from pgax.ops import logprobs, returns, surrogates

# Of `multistep_test.py`: rewards and discounts after each step, values of the next state.
_R = np.array([[1.0, 0.0, -1.0, 0.0, 1.0], [0.5, 0.8, -0.7, 0.0, 2.1]])
_DISCOUNT = np.array([[0.5, 0.9, 1.0, 0.5, 0.8], [0.9, 0.5, 0.3, 0.8, 0.7]])
_V = np.array([[3.0, 1.0, 5.0, -5.0, 3.0], [-1.7, 1.2, 2.3, 2.2, 2.7]])
_RTOL = 1e-5


def checks() -> list[Check]:
  """Compares returns, advantages and losses with the expected arrays of rlax's tests."""
  return [*_returns(), *_advantages(), *_losses()]


def _returns() -> list[Check]:
  """Returns with a discount of every step.

  pgax has one discount a sequence. With `c_t` the product of all discounts before `t`,
  rewards `c_t r_t` and values `c_t V_t` have returns `c_t G_t` without any discount.
  """
  scale = np.cumprod(np.concatenate([np.ones((2, 1)), _DISCOUNT], axis=1), axis=1)
  rewards, mask = jnp.asarray(_R * scale[:, :-1]), jnp.ones(_R.shape)
  # The value of the first state is in no return; that after the last step bootstraps.
  states = np.concatenate([np.zeros((2, 1)), _V], axis=1) * scale
  values, end = jnp.asarray(states[:, :-1]), jnp.asarray(states[:, -1])

  def unscaled(advantages):
    return np.asarray(advantages + values) / scale[:, :-1]

  monte_carlo = [
    [1.315, 0.63, 0.7, 1.7, 3.4],
    [1.33592, 0.9288, 0.2576, 3.192, 3.99],
  ]
  three = [[2.8, -3.15, 0.7, 1.7, 3.4], [1.2155, 0.714, 0.2576, 3.192, 3.99]]
  lambda_returns = [
    [1.6460547, 0.72281253, 0.7375001, 0.6500001, 3.4],
    [0.7866317, 0.9913063, 0.1101501, 2.834, 3.99],
  ]
  gae = returns.gae(rewards, values, mask, lam=0.75, bootstrap=end)
  rows = [
    ("lambda_returns, lambda .75", "`returns.gae` + values", lambda_returns, gae),
    (
      "discounted_returns",
      "`returns.gae(lam=1)` + values",
      monte_carlo,
      returns.gae(rewards, values, mask, lam=1.0, bootstrap=end),
    ),
  ]
  for n, expected in ((3, three), (5, monte_carlo), (7, monte_carlo)):
    advantages = returns.n_step_advantages(rewards, values, mask, n, bootstrap=end)
    call = f"`returns.n_step_advantages(n={n})` + values"
    rows.append((f"n_step_bootstrapped_returns, n {n}", call, expected, advantages))
  return [
    Check(case, call, np.array(expected), unscaled(actual), _RTOL)
    for case, call, expected, actual in rows
  ]


def _advantages() -> list[Check]:
  """Generalized advantages; a discount of 0 within a row of rlax ends an episode."""
  episodes = (
    ([0.0, 0.0, 1.0, 0.0, -0.5], [1.0, 4.0, -3.0, -2.0, -1.0], -1.0, 0.99),
    ([0.0, 0.0, 0.0, 0.0], [-3.0, -2.0, -1.0, 0.0], 0.0, 0.9),
    ([1.0], [5.0], -1.0, 0.9),
  )
  expected = {
    1.0: [[-1.45118, -4.4557, 2.5396, 0.5249, -0.49], [3.0, 2.0, 1.0, 0.0, -4.9]],
    0.7: [[-0.676979, -5.248167, 2.4846, 0.6704, -0.49], [2.2899, 1.73, 1.0, 0.0, -4.9]],
    0.4: [[0.56731, -6.042, 2.3431, 0.815, -0.49], [1.725, 1.46, 1.0, 0.0, -4.9]],
  }
  rows = []
  for lam, arrays in expected.items():
    parts = [
      returns.gae(
        np.array(rewards), np.array(values), np.ones(len(rewards)), discount, lam, end
      )
      for rewards, values, end, discount in episodes
    ]
    title = f"truncated_generalized_advantage_estimation, lambda {lam}"
    flat = np.concatenate([np.ravel(x) for x in arrays])
    # rlax prints four digits, and allows an error of 1e-3.
    rows.append(Check(title, "`returns.gae`", flat, np.concatenate(parts), 1e-3))
  return rows


def _losses() -> list[Check]:
  """Losses of `policy_gradients_test.py`: means over three steps, in two rows."""
  logits = np.array([[1.0, 1.0, 1.0], [2.0, 0.0, 0.0], [-1.0, -2.0, -3.0]])
  advantages = np.array([[0.3, 0.2, 0.1], [-0.3, -0.2, -0.1]])
  weights = np.array([[-2.0, 2.0, 0.0], [-3.0, 1.0, -1.0]])
  both = jnp.asarray(np.stack([logits, logits + 1]))
  actions = jnp.array([[0, 1, 2], [0, 0, 0]])
  log_probs = logprobs.log_softmax(both)
  logp = logprobs.token_logp(log_probs, actions)
  gradient = surrogates.policy_gradient(logp, advantages).loss
  entropy = -logprobs.entropy(log_probs)
  old = np.array([[1.0, 1.0, 1.0], [2.0, 0.0, 0.0], [-3.0, -2.0, -1.0]])
  new_logp, old_logp = (
    logprobs.token_logp(
      logprobs.log_softmax(jnp.asarray(np.stack([x, x]))), jnp.array([[0, 1, 2]] * 2)
    )
    for x in (logits, old)
  )
  clipped = surrogates.clipped(new_logp, old_logp, advantages, 0.2, 0.2).loss
  rows = (
    ("policy_gradient_loss", "`surrogates.policy_gradient`", weights * gradient),
    ("entropy_loss", "minus `logprobs.entropy`", weights * entropy),
    ("clipped_surrogate_pg_loss", "`surrogates.clipped`", clipped),
  )
  expected = ([0.0788835088, 0.327200909], [0.288693, 1.15422], [-0.17117467, 0.19333333])
  return [
    Check(case, call, np.array(mean), np.mean(actual, axis=1), rtol)
    for (case, call, actual), mean, rtol in zip(
      rows, expected, (_RTOL, _RTOL, 1e-4), strict=True
    )
  ]
