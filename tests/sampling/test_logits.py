"""Frequencies of samples match exact distributions, for all options and combinations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgax.sampling import Options, logit_bias
from pgax.sampling.logits import categorical, next_token
from pgax.sampling.options import canonical

DRAWS, VOCAB = 20_000, 70  # more than one block
LOGITS = np.random.default_rng(0).normal(0, 2, VOCAB).astype(np.float32)
BIAS = logit_bias(VOCAB, {3: 2.0, 8: -1.0}, (5, 6))


def reference(
  logits, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, min_tokens=0, biased=False
):
  """The distribution sampled from, by sorting, in float64; `min_tokens` bans token 0."""
  logits = logits.astype(np.float64) + (np.asarray(BIAS) if biased else 0)
  if min_tokens:
    logits[0] = -np.inf
  p = np.exp(logits / temperature)
  p /= p.sum()
  order = np.argsort(-p)
  if top_k:
    p[order[top_k:]] = 0
    p /= p.sum()
  before = np.cumsum(p[order]) - p[order]
  p[order[before >= top_p]] = 0
  p[p < min_p * p.max()] = 0
  return p / p.sum()


@jax.jit
def sample_with(keys, options, logits=LOGITS):
  logits = jnp.broadcast_to(logits, (len(keys), VOCAB))
  return next_token(logits, keys, jnp.zeros(len(keys), jnp.int32), options)


def sample(biased=False, **options):
  keys = jax.random.split(jax.random.key(1), DRAWS)
  bias = BIAS if biased else None
  return sample_with(keys, canonical(Options(np.array([0]), logit_bias=bias, **options)))


@pytest.mark.parametrize(
  "options",
  [
    {},
    {"temperature": 0.5},
    {"top_k": 5},
    {"top_k": 1000},
    {"top_p": 0.8},
    {"min_p": 0.1},
    {"min_tokens": 1},
    {"biased": True},
    {"temperature": 1.5, "top_k": 9, "top_p": 0.9, "min_p": 0.02},
    {"top_k": 4, "top_p": 0.7, "min_tokens": 2, "biased": True, "temperature": 2.0},
  ],
)
def test_frequencies_match_the_distribution(options):
  sampled, p = sample(**options), reference(LOGITS, **options)
  counts = np.bincount(sampled.token, minlength=VOCAB)
  assert np.all(counts[p == 0] == 0)
  likely = DRAWS * p >= 5  # unlikely tokens form one class
  expected = np.append(DRAWS * p[likely], DRAWS * p[~likely].sum())
  counts = np.append(counts[likely], counts[~likely].sum())
  expected, counts = expected[expected > 0], counts[expected > 0]
  chi_squared = np.sum((counts - expected) ** 2 / expected)
  free = len(expected) - 1
  assert chi_squared < free + 4 * np.sqrt(2 * free) + 4  # beyond 4 standard deviations
  np.testing.assert_allclose(sampled.sample_logp, np.log(p[sampled.token]), atol=1e-4)
  policy = reference(LOGITS, options.get("temperature", 1.0))
  np.testing.assert_allclose(sampled.logp, np.log(policy[sampled.token]), atol=1e-4)


def test_greedy_takes_the_most_likely_token_after_bias():
  sampled = sample(temperature=0.0, biased=True)
  assert np.all(sampled.token == np.argmax(LOGITS + np.asarray(BIAS)))
  assert np.all(sampled.sample_logp == 0)
  best = int(np.argmax(LOGITS))
  without_best = sample_with(
    jax.random.split(jax.random.key(0), DRAWS),
    canonical(Options(np.array([best]), temperature=0.0, min_tokens=1)),
  )
  assert np.all(without_best.token == np.argsort(LOGITS)[-2])


def test_equally_likely_tokens_stay_together():
  flat = jnp.zeros(VOCAB)
  keys = jax.random.split(jax.random.key(2), DRAWS)
  options = canonical(Options(np.array([0]), top_k=2, top_p=0.5))
  assert len(np.unique(sample_with(keys, options, flat).token)) == VOCAB


@given(
  st.lists(
    st.sampled_from([-np.inf, -200.0, -90.0, -20.0, 0.0, 1.0]), min_size=1, max_size=9
  ),
  st.integers(0, 2**31),
)
def test_impossible_tokens_are_never_sampled(values, seed):
  log_probs = np.full((512, VOCAB), -np.inf, np.float32)
  log_probs[:, seed % VOCAB] = 0.0
  log_probs[:, : len(values)] = values
  log_probs[:, (seed // VOCAB) % VOCAB] = 0.0
  keys = jax.random.split(jax.random.key(seed), 512)
  tokens = jax.jit(categorical)(keys, log_probs)
  assert np.all(log_probs[0, np.asarray(tokens)] > -np.inf)


@pytest.mark.parametrize(
  ("bias", "banned", "message"),
  [
    ({70: 1.0}, (), "token id 70 is not in the vocabulary of 70"),
    ({}, (-1,), "token id -1"),
    ({1: float("nan")}, (), "the bias of token 1 is nan"),
    ({}, tuple(range(VOCAB)), "all 70 tokens are banned"),
  ],
)
def test_bad_biases(bias, banned, message):
  with pytest.raises(ValueError, match=message):
    logit_bias(VOCAB, bias, banned)
  assert logit_bias(VOCAB, {}, ()) is None
