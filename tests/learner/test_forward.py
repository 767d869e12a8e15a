"""Log-probabilities in chunks: the same numbers and gradients, in less memory."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pgax.learner.forward import completion_logp
from tests import tiny

N, G, T = 4, 4, 24
ROLLOUT = tiny.rollout(N, G, T)


def compiled(chunk):
  """Value and gradient of a weighted sum of log-probabilities and entropies."""

  def objective(params):
    logp, entropy = completion_logp(
      tiny.MODEL, params, ROLLOUT, temperature=0.7, chunk=chunk
    )
    slope = jnp.arange(T) / T
    return jnp.sum(ROLLOUT.action_mask * (logp + 0.3 * slope * entropy)), (logp, entropy)

  step = jax.jit(jax.value_and_grad(objective, has_aux=True))
  return step.lower(tiny.params()).compile()


@pytest.fixture(scope="module")
def whole():
  return compiled(T)


@pytest.mark.parametrize("chunk", [5, 8])  # one leaves a rest, one does not
def test_chunks_change_nothing(whole, chunk):
  ours, theirs = compiled(chunk)(tiny.params()), whole(tiny.params())
  for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=2e-5)


def test_logits_of_all_positions_never_stand_in_memory(whole):
  logits = N * G * T * tiny.CONFIG.vocab_size * 4
  assert whole.memory_analysis().temp_size_in_bytes > logits
  in_chunks = compiled(2).memory_analysis().temp_size_in_bytes
  assert in_chunks < whole.memory_analysis().temp_size_in_bytes - logits
