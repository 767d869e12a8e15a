"""Log-probabilities and entropy, against NumPy float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgax import logprobs
from tests.strategies import floats


@given(floats((3, 5), -9, 9), st.sampled_from([0.3, 1.0, 2.0]))
def test_matches_reference(logits, temperature):
  scaled = logits.astype(np.float64) / temperature
  p = np.exp(scaled - scaled.max(-1, keepdims=True))
  p /= p.sum(-1, keepdims=True)
  ours = logprobs.log_softmax(logits, temperature)
  np.testing.assert_allclose(ours, np.log(np.maximum(p, 1e-300)), rtol=1e-4, atol=1e-4)
  tokens = np.array([4, 0, 2])
  picked = logprobs.token_logp(ours, tokens)
  np.testing.assert_allclose(np.exp(picked), p[range(3), tokens], rtol=1e-3, atol=1e-6)
  entropy = -np.sum(p * np.log(np.maximum(p, 1e-300)), -1)
  np.testing.assert_allclose(logprobs.entropy(ours), entropy, rtol=1e-3, atol=1e-4)


def test_entropy_of_forbidden_tokens():
  logits = jnp.array([0.0, 0.0, -jnp.inf])
  value, gradient = jax.value_and_grad(lambda x: logprobs.entropy(logprobs.log_softmax(x)))(
    logits
  )
  assert value == pytest.approx(np.log(2))
  assert np.all(np.isfinite(gradient[:2]))


def test_float32_for_any_dtype_of_the_model():
  logits = jnp.ones((2, 3), jnp.bfloat16)
  assert logprobs.log_softmax(logits).dtype == jnp.float32
