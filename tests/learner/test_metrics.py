"""Diagnostics of an update: each against its formula, on numbers where it moves."""

import dataclasses
import functools

import jax.numpy as jnp
import numpy as np
import pytest

from pgax import algorithms, correction
from pgax.algorithms import parts
from pgax.learner.metrics import (
  batch_metrics,
  explained_variance,
  per_completion,
  update_metrics,
)
from pgax.training.health import SamplerMismatchWarning, check_sampler
from tests import tiny

ROLLOUT, FEEDBACK, VALUES = tiny.rollout(), tiny.feedback(), tiny.values()
MASK = np.asarray(ROLLOUT.action_mask)
OLD = ROLLOUT.logp + 0.5 * (VALUES - 0.4) * MASK  # the trainer computes another one


def computed(algorithm, old=OLD):
  values = VALUES if algorithm.critic else None
  batch = algorithms.prepare(
    algorithm, ROLLOUT, FEEDBACK, old, old - 0.2 * MASK, values=values
  )
  return batch, batch_metrics(algorithm, batch, old)


def mean(x):
  return float(np.asarray(x)[MASK].mean())


def test_of_a_batch():
  batch, metrics = computed(algorithms.grpo())
  assert metrics["advantage/mean_abs"] == pytest.approx(mean(np.abs(batch.advantages)))
  spread = np.asarray(batch.advantages)[MASK].std()
  assert metrics["advantage/std"] == pytest.approx(spread, rel=1e-5)
  assert metrics["ratio/first_step"] == pytest.approx(
    mean(np.exp(OLD - ROLLOUT.logp)), rel=1e-5
  )
  assert metrics["ratio/sampler_error"] == pytest.approx(mean(np.abs(OLD - ROLLOUT.logp)))
  assert metrics["kl/ref"] == pytest.approx(np.exp(-0.2) + 0.2 - 1, rel=1e-4)
  assert not any(name.startswith(("value", "correction")) for name in metrics)


def test_divergences_per_completion():
  metrics = {"kl/ref": jnp.float32(0.1), "loss": jnp.float32(1.0)}
  mask = jnp.asarray([[[1, 1, 0], [1, 1, 1], [0, 0, 0]]], bool)  # one is not trained on
  result = per_completion(metrics, mask)
  assert set(result) == {"kl/ref_completion"}
  assert result["kl/ref_completion"] == pytest.approx(0.25)


def test_of_a_critic():
  batch, metrics = computed(algorithms.ppo())
  v, r = np.asarray(VALUES)[MASK], np.asarray(batch.targets)[MASK]
  assert metrics["value/mean"] == pytest.approx(v.mean(), rel=1e-5)
  expected = 1 - np.var(r - v) / np.var(r)
  assert metrics["value/explained_variance"] == pytest.approx(expected, rel=1e-4)


def test_explained_variance():
  x, mask = jnp.array([1.0, 2.0, 4.0, jnp.nan]), jnp.array([1, 1, 1, 0], bool)
  assert explained_variance(x, x, mask) == pytest.approx(1)
  assert explained_variance(x + 3, x, mask) == pytest.approx(1, abs=1e-5)
  assert explained_variance(jnp.zeros(4), x, mask) == pytest.approx(0, abs=1e-6)
  assert explained_variance(-x, x, mask) < 0
  assert explained_variance(x, jnp.ones(4), mask) == 0
  assert explained_variance(x, x, jnp.zeros(4, bool)) == 0


def test_of_a_correction():
  for part in (
    parts.TruncatedWeights(1.05),
    parts.IcePop(0.9, 1.1),
    functools.partial(correction.sequence, cap=2.0),
  ):
    algorithm = dataclasses.replace(algorithms.grpo(), sampler_correction=part)
    batch, metrics = computed(algorithm)
    w = np.asarray(batch.sampler_weights)[MASK]
    expected = w.sum() ** 2 / (w.size * (w**2).sum())
    result = metrics["correction/effective_sample_size"]
    assert result == pytest.approx(expected, rel=1e-4) and result < 0.9999
    _, same = computed(algorithm, old=ROLLOUT.sample_logp)
    assert same["correction/effective_sample_size"] == pytest.approx(1)


def test_of_an_update():
  # Ratios of 0.6 and 1.5, half each; with the advantages as they are both bounds act.
  logp = OLD + jnp.where(VALUES > 0.5, np.log(1.5), np.log(0.6)) * MASK
  algorithm = algorithms.grpo()
  batch, _ = computed(algorithm)
  _, sums = algorithms.loss(algorithm, logp, batch, 0.04)
  one = {"sums": sums, "entropy": jnp.float32(7.0), "tokens": jnp.sum(batch.loss_mask)}
  metrics = update_metrics(algorithm, **one)
  ratio, a = np.exp(np.asarray(logp - OLD))[MASK], np.asarray(batch.advantages)[MASK]
  low, high = np.mean((ratio < 0.8) & (a < 0)), np.mean((ratio > 1.2) & (a > 0))
  assert low > 0 and high > 0
  assert metrics["ratio/clip_low"] == pytest.approx(low, rel=1e-5)
  assert metrics["ratio/clip_high"] == pytest.approx(high, rel=1e-5)
  assert metrics["ratio/clip_fraction"] == pytest.approx(low + high, rel=1e-5)
  assert metrics["kl/old"] == pytest.approx(np.mean(ratio - np.log(ratio) - 1), rel=1e-4)
  assert metrics["entropy"] == pytest.approx(7.0 / MASK.sum(), rel=1e-5)


def test_a_mismatch_is_warned_of_once_a_text():
  check_sampler({"ratio/first_step": 1.0 + 1e-5, "ratio/sampler_error": 1e-5})
  for first, error in ((1.01, 0.0), (1.0, 0.01), (0.98, 0.02)):
    with pytest.warns(SamplerMismatchWarning, match="sampler and trainer disagree"):
      check_sampler({"ratio/first_step": first, "ratio/sampler_error": error})
