"""Numbers in tests of TRL, verl and NeMo RL that run on a CPU."""

import jax.numpy as jnp
import numpy as np

from experiments.conformance.check import Check
from pgax.ops import advantages, correction, masking, returns, shaping


def trl_checks() -> list[Check]:
  """Compares with `test_ppo_trainer.py` and `test_rewards.py` of TRL."""
  x, mask = np.array([1.0, 2.0, 3.0, 4.0]), np.array([0, 1, 1, 0])
  # Of two numbers, 2 and 3, with the variance of a sample, 1/2.
  whitened = np.array([0.0, -0.5, 0.5, 0.0]) / np.sqrt(0.5)
  overlong = shaping.overlong(np.array([50, 110, 90]), max_length=100, buffer=20)
  return [
    Check("masked_mean", "`masking.masked_mean`", 2.5, masking.masked_mean(x, mask), 1e-6),
    Check(
      "masked_whiten",
      "`advantages.whiten(ddof=1)`",
      whitened,
      advantages.whiten(x, mask, ddof=1),
      1e-5,
    ),
    Check(
      "get_soft_overlong_punishment, 50, 110 and 90 tokens of 100",
      "`shaping.overlong(max_length=100, buffer=20)`",
      np.array([0.0, -1.0, -0.5]),
      overlong,
      1e-6,
    ),
  ]


def verl_checks() -> list[Check]:
  """Compares with `test_core_algos_on_cpu.py`, `test_rollout_corr.py` of verl."""
  rng = np.random.default_rng(0)
  rewards = np.array([0, 0, 0.1, 0.1, 0.1, 0, 0, 0.1, 1, 0, 0])
  mask = np.array([0, 0, 1, 1, 1, 0, 0, 1, 1, 0, 0])
  values = np.array([0, 0, 4.0, 5, 6, 0, 0, 7, 9, 0, 0])
  noise = np.where(mask, values, rng.uniform(-100, 100, mask.shape))
  one, other = (returns.gae(rewards, x, mask, 0.9, 0.8) for x in (values, noise))
  # The five tokens of the policy, as if there was nothing between them.
  actions = mask > 0
  alone = returns.gae(rewards[actions], values[actions], np.ones(5), 0.9, 0.8)
  ratios = correction.truncated(np.full(2, -2.0), np.array([-1.0, -2.5]), cap=2.0)
  group = advantages.grpo(np.array([1.0, 3.0]), ddof=1)
  return [
    Check(
      "multi-turn advantages do not depend on values of observations",
      "`returns.gae`",
      one,
      other,
      0.0,
    ),
    Check(
      "multi-turn advantages skip observations", "`returns.gae`", alone, one[actions], 1e-12
    ),
    Check(
      "rollout_is_weights, token, ratios e^-1 and e^.5",
      "`correction.truncated(cap=2)`",
      np.array([0.368, 1.649]),
      ratios,
      1e-3,
    ),
    Check(
      "group_mean_std of 1 and 3: mean 2, std √2",
      "`advantages.grpo(ddof=1)`",
      np.array([-1.0, 1.0]) / np.sqrt(2),
      group,
      1e-6,
    ),
  ]


def nemo_checks() -> list[Check]:
  """Compares with `test_ppo.py` and `test_reward_functions.py` of NeMo RL."""
  values, rewards = jnp.array([1.0, 2.0, 3.0]), jnp.array([0.0, 0.0, 5.0])
  penalty = 0.5 * shaping.overlong(np.array([10, 22, 25]), max_length=25, buffer=5)
  return [
    Check(
      "GAE with lambda 0",
      "`returns.gae(lam=0)`",
      np.array([1.0, 1.0, 2.0]),
      returns.gae(rewards, values, jnp.ones(3), lam=0.0),
      1e-6,
    ),
    Check(
      "reward shaping, 10, 22 and 25 tokens of 25",
      "`shaping.overlong(max_length=25, buffer=5)` times .5",
      np.array([1.0, 0.6, 0.1]),
      np.array([1.0, 0.8, 0.6]) + np.asarray(penalty),
      1e-6,
    ),
  ]
