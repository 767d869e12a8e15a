"""Switches of the decoder: windows, dtypes, recomputation, scaling, stacked layers."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pgax.models import Decoder
from pgax.models.attend import kernel
from pgax.models.parameters import init_params, matrices
from pgax.models.rope import RopeScaling, frequencies
from tests import tiny
from tests.logits import completion_logits

ROLLOUT = tiny.rollout()
TOKENS = np.random.default_rng(0).integers(3, 259, (1, 1, 12)).astype(np.int32)
POSITIONS = np.arange(12, dtype=np.int32)[None, None]


def changed(**changes) -> Decoder:
  return Decoder(dataclasses.replace(tiny.CONFIG, **changes))


def loss_of(model):
  r = ROLLOUT

  @jax.jit
  @jax.value_and_grad
  def loss(params):
    logits = completion_logits(
      model, params, r.prompt_tokens, r.prompt_mask, r.tokens, r.token_mask
    )
    return jnp.mean(jnp.where(r.token_mask[..., None], logits, 0) ** 2)

  return loss


def logits_and_gradient(model):
  return loss_of(model)(tiny.params())


def test_a_sliding_layer_attends_to_its_window_only():
  # Of two layers the first is sliding: it attends to 3 tokens, the second one to all.
  def differs(model):
    other = TOKENS.copy()
    other[..., 4] += 1
    apply = jax.jit(model.apply)
    both = [apply(tiny.params(), x, POSITIONS)[0][0, 0] for x in (TOKENS, other)]
    return np.abs(both[0] - both[1]).max(-1) > 0

  everywhere = np.arange(12) >= 4
  np.testing.assert_array_equal(differs(tiny.MODEL), everywhere)
  mixed = changed(sliding_window=3, sliding_layers=(True, False))
  np.testing.assert_array_equal(differs(mixed), everywhere)
  both = changed(sliding_window=3)  # 2 tokens back in each of the two layers
  np.testing.assert_array_equal(differs(both), everywhere & (np.arange(12) <= 8))


def test_packed_texts_do_not_attend_to_each_other():
  model = changed(
    sliding_window=3,
    sliding_layers=(True, False),
    local_rope_theta=100.0,
    attention_softcap=5.0,
  )
  # A text of 7 tokens and one of 5 in a row, against each in a row of its own.
  segments = np.where(np.arange(12) < 7, 1, 2).astype(np.int32)
  positions = np.where(segments == 1, np.arange(12), np.arange(12) - 7).astype(np.int32)

  @jax.jit
  def hidden(tokens, positions, segments):
    return model.apply(
      tiny.params(), tokens, positions, segments=segments, method=model.features
    ).hidden

  packed = hidden(TOKENS, positions[None, None], segments[None, None])[0, 0]
  for number, begin, end in ((1, 0, 7), (2, 7, 12)):
    alone = np.roll(TOKENS, -begin, axis=-1)  # a text does not attend to what follows it
    expected = hidden(alone, POSITIONS, np.full_like(TOKENS, number))[0, 0]
    np.testing.assert_allclose(
      packed[begin:end], expected[: end - begin], rtol=1e-5, atol=1e-5
    )
  mixed = hidden(TOKENS, positions[None, None], np.ones_like(TOKENS))[0, 0]
  assert np.abs(mixed[7:] - packed[7:]).max() > 1e-2  # the segments make the difference


def test_recomputation_changes_no_gradient():
  loss, gradient = logits_and_gradient(tiny.MODEL)
  again, gradient_again = logits_and_gradient(changed(remat=True))
  np.testing.assert_allclose(again, loss, rtol=1e-6)
  jax.tree.map(
    lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-7),
    gradient_again,
    gradient,
  )


def test_bfloat16_computes_with_float32_parameters_and_logits():
  model = changed(dtype="bfloat16")
  fresh = tiny.fresh(model)
  assert {x.dtype for x in jax.tree.leaves(fresh)} == {jnp.dtype("float32")}
  logits, cache = jax.jit(model.apply)(tiny.params(), TOKENS, POSITIONS)
  assert logits.dtype == jnp.float32 and cache.suffix.keys.dtype == jnp.bfloat16
  exact, _ = jax.jit(tiny.MODEL.apply)(tiny.params(), TOKENS, POSITIONS)
  error = float(jnp.abs(logits - exact).max())
  assert 0 < error < 0.05 * float(jnp.abs(exact).max())
  loss, gradient = logits_and_gradient(model)
  plain_loss, plain = logits_and_gradient(tiny.MODEL)
  assert {x.dtype for x in jax.tree.leaves(gradient)} == {jnp.dtype("float32")}
  np.testing.assert_allclose(loss, plain_loss, rtol=0.02)
  for rough, exact in zip(jax.tree.leaves(gradient), jax.tree.leaves(plain), strict=True):
    assert jnp.linalg.norm(rough - exact) < 0.1 * jnp.linalg.norm(exact)


def test_the_program_does_not_grow_with_depth():
  def lines(layers):
    model = changed(num_layers=layers)
    params = jax.eval_shape(lambda: init_params(model, jax.random.key(0)))
    return len(jax.jit(model.apply).lower(params, TOKENS, POSITIONS).as_text().splitlines())

  assert lines(9) == lines(3)


def test_matrices_are_recognized_by_name():
  model = changed(
    qkv_bias=True, out_bias=True, mlp_bias=True, qk_norm="head", norm_placement="sandwich"
  )
  marks = matrices(tiny.fresh(model))["params"]
  assert marks["embedding"] and not marks["final_norm"]["scale"]
  block = marks["blocks"]
  names = {name for name, is_matrix in block["attention"].items() if is_matrix is True}
  assert names == {"query", "key", "value", "out"}
  names = {name for name, is_matrix in block["mlp"].items() if is_matrix}
  assert names == {"gate", "up", "down"}
  assert not any(jax.tree.leaves({k: v for k, v in block.items() if k.endswith("norm")}))


def test_scaled_wavelengths():
  plain, _ = frequencies(1e4, 16, RopeScaling())
  np.testing.assert_allclose(plain, 1e4 ** (-np.arange(8) / 8), rtol=1e-5)
  slow, factor = frequencies(1e4, 16, RopeScaling("linear", 4.0))
  np.testing.assert_allclose(slow, plain / 4, rtol=1e-6)
  assert factor == 1.0
  for kind, length in (("llama3", 1000), ("yarn", 1000)):
    mixed, factor = frequencies(1e4, 16, RopeScaling(kind, 4.0, length))
    ratio = plain / mixed  # short wavelengths stay, long ones get the full factor
    assert ratio[0] == 1 and ratio[-1] == pytest.approx(4) and np.all(np.diff(ratio) >= 0)
    assert factor == pytest.approx(0.1 * np.log(4) + 1 if kind == "yarn" else 1)


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"activation": "relu"}, "activation is 'relu'; it must be one of silu, gelu_tanh"),
    ({"dtype": "float16"}, "dtype is 'float16'; it must be one of float32, bfloat16"),
    ({"sliding_window": -1}, "sliding_window is -1; it must be positive, or 0"),
    ({"logit_softcap": float("nan")}, "logit_softcap is nan"),
    ({"sliding_window": 4, "sliding_layers": (True,)}, "sliding_layers has 1 entries"),
    ({"sliding_layers": (True, False)}, "sliding_window is 0; it must be positive"),
    (
      {"local_rope_theta": 1e4},
      "local_rope_theta is 10000.0 and model.sliding_window is 0",
    ),
  ],
)
def test_bad_switches(changes, message):
  with pytest.raises(ValueError, match=message):
    dataclasses.replace(tiny.CONFIG, **changes)


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"kind": "ntk"}, "kind is 'ntk'; it must be one of none, linear, llama3, yarn"),
    ({"kind": "linear", "factor": 0.0}, "factor is 0.0; it must be positive"),
    ({"kind": "yarn"}, "trained_length is 0; it must be at least 1 for yarn"),
    ({"kind": "llama3", "trained_length": 8, "low_freq_factor": 5.0}, "below high_freq"),
    ({"kind": "yarn", "trained_length": 8, "beta_slow": 40.0}, "below beta_fast"),
    ({"kind": "yarn", "trained_length": 8, "attention_factor": -1.0}, "not be negative"),
  ],
)
def test_bad_scalings(changes, message):
  with pytest.raises(ValueError, match=message):
    RopeScaling(**changes)


@pytest.mark.parametrize("attention", ["blockwise", "kernel"])
def test_attention_in_blocks_is_the_same(attention, monkeypatch):
  in_xla = functools.partial(kernel.dot_product, implementation="xla")
  monkeypatch.setitem(kernel.KERNELS, "cpu", in_xla)
  expected, gradient = logits_and_gradient(changed(attention="einsum"))
  value, other = logits_and_gradient(changed(attention=attention))
  np.testing.assert_allclose(value, expected, rtol=1e-5)
  for x, y in zip(*map(jax.tree.leaves, (other, gradient)), strict=True):
    np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)


def test_unknown_attention():
  with pytest.raises(ValueError, match="attention is 'flash'; it must be one of auto, ein"):
    changed(attention="flash")
