"""Log-probabilities in chunks against all logits at once, in value and gradient."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pgax.learner.chunked_head import chunked_head, entropy
from pgax.models import Decoder
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
  params = jax.tree.map(lambda x: 3 * x, tiny.fresh(model))
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
    return chunked_head(model, *args, tokens, temperature=0.7, chunk=chunk)

  def whole(*args):
    return reference(model, *args, tokens, 0.7)

  def values_and_gradient(function):
    def weighted(*args):
      outputs = function(*args)
      return jnp.vdot(weights, jnp.stack(outputs)), outputs

    gradient = jax.grad(weighted, argnums=(0, 1), has_aux=True)
    return lambda *args: gradient(*args)[::-1]

  both = chunked, whole
  outputs, gradients = zip(
    *(jax.jit(values_and_gradient(function))(params, hidden) for function in both),
    strict=True,
  )
  for ours, theirs in zip(*outputs, strict=True):
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
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
      chunked_head(model, params, hidden[:, :, :count], tokens[:, :, :count], chunk=1)[0]
    )

  gradient = jax.jit(jax.grad(loss), static_argnums=1)
  one, many = (gradient(params, n)["params"]["embedding"] for n in (2, length))
  np.testing.assert_allclose(many, one * length / 2, rtol=1e-4)


def test_logits_of_all_chunks_are_never_held():
  def loss(params, hidden):
    tokens = jnp.zeros(hidden.shape[:3], jnp.int32)
    return jnp.sum(chunked_head(tiny.MODEL, params, hidden, tokens, chunk=4)[0])

  hidden = jnp.zeros((2, 2, 64, tiny.CONFIG.embed_dim))
  program = jax.make_jaxpr(jax.grad(loss))(tiny.params(), hidden)
  assert largest(program) <= 2 * 2 * 64 * tiny.CONFIG.vocab_size / 4


def margin(log_probs, tokens):
  """How far a token is from the most likely one: a head of a user."""
  return jnp.max(log_probs, axis=-1) - logprobs.token_logp(log_probs, tokens)


def test_a_new_head_is_one_function(case):
  model, params, hidden, tokens, weights = case

  def chunked(params, heads):
    outputs = chunked_head(model, params, hidden, tokens, heads, temperature=0.7, chunk=3)
    return jnp.vdot(weights[0], outputs[-1]), outputs

  def whole(params):
    logits = model.apply(params, hidden, method=model.unembed)
    return jnp.vdot(weights[0], margin(logprobs.log_softmax(logits, 0.7), tokens))

  both = jax.jit(jax.value_and_grad(chunked, has_aux=True), static_argnums=1)
  (value, outputs), gradient = both(params, (entropy, margin))
  expected = jax.jit(jax.value_and_grad(whole))(params)
  for ours, theirs in zip(
    *map(jax.tree.leaves, ((value, gradient), expected)), strict=True
  ):
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)
  (_, (logp, same)), _ = both(params, (logprobs.token_logp, entropy))
  np.testing.assert_array_equal(same, outputs[0])  # heads do not change each other
  assert np.all(np.asarray(logp) < 0)
