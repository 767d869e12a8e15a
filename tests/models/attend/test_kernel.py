"""Kernels of accelerators: what is made of their results, and that they are checked first.

No accelerator computes here. JAX's own implementation stands for cuDNN's, and splash
attention is interpreted.
"""

import functools
import logging
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pgax.errors import UserError
from pgax.models.attend import Part, ScoreScale, TokenPositions, attend, choice, kernel
from tests.devices import run_on_devices
from tests.models.attend.cases import LENGTH, D, compare, make

in_xla = functools.partial(kernel.dot_product, implementation="xla")
interpreted = functools.partial(kernel.splash, interpret=True)


@functools.cache
def by(inner):
  """Attention by a kernel, as one function for each, which is compiled once."""

  def attend(queries, parts, tokens, window, scale):
    assert window is None
    return kernel.attend(inner, queries, parts, tokens.positions, scale.scale)

  return attend


@pytest.mark.parametrize(
  ("inner", "repeats", "shared"),
  [(in_xla, 2, True), (in_xla, 1, False), (interpreted, 2, True)],
)
def test_prompt_and_completion(inner, repeats, shared):
  compare(by(inner), make(repeats, shared=shared), None, ScoreScale(D**-0.5), 1e-5)


def test_tokens_in_any_order():
  queries, parts, tokens, cotangent = make(2)
  order = jax.random.permutation(jax.random.key(0), queries.shape[2])
  positions = tokens.positions[:, :, order]
  own = Part(*(x[:, :, :, order] for x in parts[1][:2]), positions)
  prompt = Part(*(x[:, :, :, ::-1] for x in parts[0][:2]), parts[0].positions[..., ::-1])
  tokens = TokenPositions(positions)
  given = (queries[:, :, order], (prompt, own), tokens, cotangent[:, :, order])
  compare(by(in_xla), given, None, ScoreScale(D**-0.5), 1e-5)


def test_rows_and_heads_are_divided_over_a_mesh():
  run_on_devices(4, "tests.models.attend.on_mesh")


SHAPE = (5, 9, 2, 2, D)


@pytest.mark.parametrize("prompt", [0, 5])
def test_a_right_kernel_agrees(prompt):
  assert not kernel.disagreement(in_xla, (prompt, *SHAPE[1:]), "float32", 0.3)
  assert not kernel.disagreement(in_xla, (prompt, *SHAPE[1:]), "bfloat16", 0.3)


def forgets_the_scale(queries, keys, values, lengths, scale):
  return in_xla(queries, keys, values, lengths, 1.01 * scale)


def sees_the_future(queries, keys, values, lengths, scale):
  del lengths
  return jax.nn.dot_product_attention(queries, keys, values, scale=scale)


def has_a_wrong_gradient(queries, keys, values, lengths, scale):
  output = in_xla(queries, keys, values, lengths, scale)
  return jax.lax.stop_gradient(output) + 0.99 * (output - jax.lax.stop_gradient(output))


def gives_nan(queries, keys, values, lengths, scale):
  return jnp.nan * in_xla(queries, keys, values, lengths, scale)


def does_not_compile(queries, keys, values, lengths, scale):
  raise NotImplementedError("head_dim of 8\nand more")


WRONG = (
  forgets_the_scale,
  sees_the_future,
  has_a_wrong_gradient,
  gives_nan,
  does_not_compile,
)


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_kernel_does_not(wrong):
  reason = kernel.disagreement(wrong, SHAPE, "float32", 0.3)
  expected = "are .* off" if wrong is not does_not_compile else "^NotImplementedError: head"
  assert reason and re.search(expected, reason)


@pytest.fixture
def accelerator(monkeypatch):
  """Returns a function that makes this device one with a kernel."""

  def become(inner):
    monkeypatch.setattr(choice, "_MANY", {})
    monkeypatch.setattr(choice, "_MANY_ELSEWHERE", 32)
    monkeypatch.setitem(kernel.KERNELS, "cpu", inner)
    choice.warn.cache_clear()

  return become


def inside_a_scan(backend, given, scale):
  """Values and gradients as in a model: in jit, in a scan, recomputed."""
  queries, parts, tokens, cotangent = given

  @jax.checkpoint
  def layer(x, _):
    out = attend(x, parts, tokens, None, scale, backend)
    return x + out.astype(x.dtype), jnp.sum(out * cotangent)

  def loss(queries):
    return jnp.sum(jax.lax.scan(layer, queries, None, length=2)[1])

  return jax.jit(jax.value_and_grad(loss))(queries)


def test_auto_takes_a_kernel_that_agrees(accelerator, caplog):
  given, calls = make(2), []

  def counted(*args):
    calls.append(args[0].shape[1])
    return in_xla(*args)

  expected = inside_a_scan("einsum", given, ScoreScale(0.3))
  accelerator(counted)
  with caplog.at_level(logging.WARNING):
    for backend in ("auto", "kernel"):
      ours = inside_a_scan(backend, given, ScoreScale(0.3))
      for x, y in zip(*map(jax.tree.leaves, (ours, expected)), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-4)
  assert len(calls) > 2 and max(calls) > LENGTH and not caplog.records


def test_auto_leaves_a_kernel_that_does_not_and_warns_once(accelerator, caplog):
  given = make(2)
  expected = inside_a_scan("blockwise", given, ScoreScale(0.3))
  accelerator(has_a_wrong_gradient)
  with caplog.at_level(logging.WARNING):
    ours = [inside_a_scan("auto", given, ScoreScale(0.3)) for _ in range(2)]
  jax.tree.map(np.testing.assert_array_equal, ours, [expected, expected])
  assert len(caplog.records) == 1
  assert (
    "computed by model.attention='blockwise'" in caplog.text and " off, " in caplog.text
  )
  with pytest.raises(UserError, match="'kernel', which can't be used: its results are"):
    inside_a_scan("kernel", given, ScoreScale(0.3))


@pytest.mark.parametrize(
  ("change", "message"),
  [
    ({"softcap": 2.0}, "attention_softcap is 2.0; it must be 0"),
    ({"window": 4}, "sliding windows"),
    ({"segments": True}, "rows hold several texts"),
    ({"device": "gpu"}, "the dtype is float32; it must be bfloat16 or float16"),
    ({"device": "tpu"}, "there is no tpu here to check its kernel on"),
    ({"device": "cpu"}, "there is no kernel for a cpu"),
  ],
)
def test_what_it_cannot_do_is_an_error_if_forced(change, message, monkeypatch):
  monkeypatch.setattr(choice, "platform", lambda layout: change.get("device", "tpu"))
  queries, parts, tokens, _ = make(1, segments=change.get("segments", False))
  scale = ScoreScale(1.0, change.get("softcap", 0.0))
  with pytest.raises(UserError, match=message):
    attend(queries, parts, tokens, change.get("window"), scale, "kernel")
  attend(queries, parts, tokens, change.get("window"), scale, "auto")
