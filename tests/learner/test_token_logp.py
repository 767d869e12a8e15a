"""Log-probabilities in chunks against all logits at once, in value and gradient."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pgax.learner.token_logp import token_logp
from pgax.models import Decoder
from pgax.models.parameters import init_params
from pgax.ops import logprobs
from tests import tiny
from tests.jaxprs import largest

LENGTH = 10


@pytest.fixture(scope="module", params=["tied", "untied", "softcap"])
def case(request):
  changes = {
    "tied": {},
    "untied": {"tie_embeddings": False},
    "softcap": {"logit_softcap": 3.0, "logit_divisor": 0.5},
  }[request.param]
  model = Decoder(dataclasses.replace(tiny.CONFIG, **changes))
  keys = jax.random.split(jax.random.key(0), 4)
  params = jax.tree.map(lambda x: 3 * x, init_params(model, keys[0]))
  hidden = jax.random.normal(keys[1], (2, 3, LENGTH, tiny.CONFIG.embed_dim))
  tokens = jax.random.randint(keys[2], (2, 3, LENGTH), 0, tiny.CONFIG.vocab_size)
  weights = jax.random.normal(keys[3], (2, 2, 3, LENGTH))
  return model, params, hidden, tokens, weights


def reference(model, params, hidden, tokens, temperature):
  logits = model.apply(params, hidden, method=model.unembed)
  log_probs = logprobs.log_softmax(logits, temperature)
  return logprobs.token_logp(log_probs, tokens), logprobs.entropy(log_probs)


@pytest.mark.parametrize("chunk", [1, 3, 5, 10, 64])
def test_equals_all_logits_at_once(case, chunk):
  model, params, hidden, tokens, weights = case

  def chunked(*args):
    return token_logp(model, *args, tokens, 0.7, chunk)

  def whole(*args):
    return reference(model, *args, tokens, 0.7)

  def weighted(function):
    return lambda *args: jnp.vdot(weights, jnp.stack(function(*args)))

  for ours, theirs in zip(chunked(params, hidden), whole(params, hidden), strict=True):
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
  gradients = [
    jax.grad(weighted(function), argnums=(0, 1))(params, hidden)
    for function in (chunked, whole)
  ]
  for ours, theirs in zip(*map(jax.tree.leaves, gradients), strict=True):
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)


def test_chunks_of_narrow_activations_add_up_in_float32():
  """Of many chunks that all add the same, a sum in bfloat16 would lose a part."""
  model = Decoder(dataclasses.replace(tiny.CONFIG, dtype="bfloat16"))
  params, length = tiny.params(), 512
  hidden = jnp.ones((1, 1, length, tiny.CONFIG.embed_dim), jnp.bfloat16)
  tokens = jnp.full((1, 1, length), 7)

  def loss(params, count):
    return jnp.sum(
      token_logp(model, params, hidden[:, :, :count], tokens[:, :, :count], 1.0, 1)[0]
    )

  one, many = (jax.grad(loss)(params, n)["params"]["embedding"] for n in (2, length))
  np.testing.assert_allclose(many, one * length / 2, rtol=1e-4)


def test_logits_of_all_chunks_are_never_held():
  def loss(params, hidden):
    tokens = jnp.zeros(hidden.shape[:3], jnp.int32)
    return jnp.sum(token_logp(tiny.MODEL, params, hidden, tokens, 1.0, 4)[0])

  hidden = jnp.zeros((2, 2, 64, tiny.CONFIG.embed_dim))
  program = jax.make_jaxpr(jax.grad(loss))(tiny.params(), hidden)
  assert largest(program) <= 2 * 2 * 64 * tiny.CONFIG.vocab_size / 4
