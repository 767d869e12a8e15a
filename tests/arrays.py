"""Rollouts, rewards and values made of random numbers, for tests without a model."""

import jax.numpy as jnp
import numpy as np

from pgax.types import Feedback, Rollout


def prompts(lengths=(3, 5, 2, 4), width: int = 5):
  """Random right-padded prompts `[N, P]` and their mask."""
  rng = np.random.default_rng(0)
  mask = np.arange(width) < np.array(lengths)[:, None]
  return np.where(mask, rng.integers(3, 259, mask.shape), 0).astype(np.int32), mask


def rollout(n: int = 4, group: int = 4, length: int = 6, seed: int = 0) -> Rollout:
  """A single-turn rollout of random tokens, with lengths of at least 1."""
  rng = np.random.default_rng(seed)
  tokens, mask = prompts(lengths=[2 + i % 4 for i in range(n)])
  lengths = rng.integers(1, length + 1, (n, group))
  real = np.arange(length) < lengths[..., None]
  logp = np.where(real, -rng.random(real.shape), 0).astype(np.float32)
  sampled = np.where(real, rng.integers(3, 259, real.shape), 0).astype(np.int32)
  arrays = (tokens, mask, sampled, real, real, logp, logp, lengths < length)
  return Rollout(*map(jnp.asarray, arrays))


def multi_turn(n: int = 4, group: int = 4, length: int = 9, seed: int = 0) -> Rollout:
  """A rollout with tokens of an environment between the actions, and after some of them."""
  plain = rollout(n, group, length, seed)
  rng = np.random.default_rng(seed + 100)
  action_mask = plain.token_mask & (rng.random(plain.token_mask.shape) < 0.6)
  return plain.replace(action_mask=action_mask)


def feedback(n: int = 4, group: int = 4, length: int = 6, seed: int = 0) -> Feedback:
  """Rewards of a few levels, all valid, with greedy and step rewards and two scores."""
  rng = np.random.default_rng(seed)
  rewards = rng.choice([0.0, 0.5, 1.0], (n, group)).astype(np.float32)
  greedy = rng.choice([0.0, 1.0], n).astype(np.float32)
  steps = rng.choice([0.0, 1.0], (n, group, length)).astype(np.float32)
  ends = rng.random((n, group, length)) < 0.5
  scores = rng.choice([0.0, 1.0], (n, group, 2)).astype(np.float32)
  arrays = (rewards, np.ones((n, group), bool), greedy, steps * ends, ends, scores)
  return Feedback(*map(jnp.asarray, arrays))


def values(n: int = 4, group: int = 4, length: int = 6, seed: int = 1):
  """Values of a critic, `[N, G, T]`."""
  random = np.random.default_rng(seed).random((n, group, length))
  return jnp.asarray(random, jnp.float32)
