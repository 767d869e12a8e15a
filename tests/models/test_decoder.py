"""The decoder computes the same numbers for a text at once and piece by piece."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pgax.models import Decoder
from pgax.models.cache import (
  NEVER,
  Cache,
  empty_key_values,
  token_positions,
  with_slots,
)
from pgax.models.prompts import read_prompts
from pgax.models.rope import RopeScaling, angles, frequencies, rotate
from tests import tiny
from tests.logits import completion_logits

TOKENS = np.random.default_rng(0).integers(3, 259, (2, 3, 7)).astype(np.int32)
POSITIONS = np.broadcast_to(np.arange(7, dtype=np.int32), TOKENS.shape)


@pytest.fixture(scope="module")
def at_once():
  return jax.jit(tiny.MODEL.apply)(tiny.params(), TOKENS, POSITIONS)


def test_logits_depend_on_the_past_only(at_once):
  changed = np.array(TOKENS)
  changed[..., 4:] = 7
  logits, _ = jax.jit(tiny.MODEL.apply)(tiny.params(), changed, POSITIONS)
  np.testing.assert_allclose(logits[:, :, :4], at_once[0][:, :, :4], atol=1e-5)
  assert np.abs(logits[:, :, 5:] - at_once[0][:, :, 5:]).max() > 1e-2


def test_cache_gives_the_same_as_reading_at_once(at_once):
  apply = jax.jit(tiny.MODEL.apply)
  suffix = empty_key_values((2, 2, 3, 2, 9, 8), jnp.float32)  # more slots than tokens
  cache, pieces = Cache(None, suffix, jnp.int32(0)), []
  for start, stop in ((0, 3), (3, 4), (4, 5), (5, 7)):
    logits, cache = apply(
      tiny.params(), TOKENS[..., start:stop], POSITIONS[..., start:stop], cache
    )
    pieces.append(logits)
  np.testing.assert_allclose(np.concatenate(pieces, axis=2), at_once[0], atol=1e-5)
  assert int(cache.index) == 7
  assert np.all(np.asarray(cache.suffix.positions)[..., 7:] == NEVER)


def test_shared_prefix_is_exact():
  prompt = np.broadcast_to(TOKENS[:, :1, :3], (2, 3, 3))
  full = np.concatenate([prompt, TOKENS[..., 3:]], axis=-1)
  expected, _ = jax.jit(tiny.MODEL.apply)(tiny.params(), full, POSITIONS)
  mask = np.ones((2, 3), bool)
  logits = completion_logits(
    tiny.MODEL,
    tiny.params(),
    full[:, 0, :3],
    mask,
    full[..., 3:],
    np.ones((2, 3, 4), bool),
  )
  np.testing.assert_allclose(logits, expected[:, :, 2:6], atol=1e-5)


def test_prompt_is_in_memory_once():
  tokens, mask = tiny.prompts()
  cache = read_prompts(tiny.MODEL, tiny.params(), tokens, mask).cache
  assert cache.prefix.keys.shape == (2, 4, 1, 2, 5, 8) and cache.suffix is None
  each = with_slots(cache, lanes=4, width=3, slots=6)
  assert each.prefix.keys.shape == (2, 4, 1, 2, 5, 8) and each.prefix_rows is None
  assert each.suffix.keys.shape == (2, 4, 3, 2, 6, 8)
  queued = with_slots(cache, lanes=2, width=3, slots=6)
  assert queued.prefix.keys.shape == (2, 2, 2, 2, 5, 8)
  assert queued.prefix_rows.shape == (2, 3)
  np.testing.assert_array_equal(queued.prefix.keys[:, 1, 0], cache.prefix.keys[:, 2, 0])


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_anywhere_changes_nothing(side):
  rollout = tiny.rollout()
  plain = completion_logits(
    tiny.MODEL,
    tiny.params(),
    rollout.prompt_tokens,
    rollout.prompt_mask,
    rollout.tokens,
    rollout.token_mask,
  )
  columns = ((0, 0), (3, 0) if side == "left" else (0, 3))
  tokens = np.pad(rollout.prompt_tokens, columns, constant_values=200)
  mask = np.pad(rollout.prompt_mask, columns)
  real = np.asarray(rollout.token_mask)
  poisoned = np.where(real, rollout.tokens, 99)
  padded = completion_logits(tiny.MODEL, tiny.params(), tokens, mask, poisoned, real)
  np.testing.assert_allclose(padded[real], plain[real], atol=1e-5)


def test_positions():
  mask = np.array([[False, True, True, False], [True, False, False, True]])
  expected = [[NEVER, 5, 6, NEVER], [0, NEVER, NEVER, 1]]
  np.testing.assert_array_equal(token_positions(mask, np.array([5, 0])), expected)


def test_rotation_is_relative_and_keeps_length():
  rng = np.random.default_rng(1)
  q, k = rng.normal(size=(2, 1, 1, 1, 1, 8)).astype(np.float32)

  def at(position):
    positions = jnp.full((1, 1, 1), position, jnp.int32)
    return angles(positions, *frequencies(1e4, 8, RopeScaling()))

  def score(i, j):
    return float(np.sum(rotate(q, at(i)) * rotate(k, at(j))))

  assert score(5, 3) == pytest.approx(score(102, 100), rel=1e-3)
  assert score(5, 3) != pytest.approx(score(5, 4), rel=1e-3)
  rotated = rotate(q, at(9))
  assert float(np.linalg.norm(rotated)) == pytest.approx(float(np.linalg.norm(q)), rel=1e-5)


def test_untied_embeddings():
  config = dataclasses.replace(tiny.CONFIG, tie_embeddings=False)
  model = Decoder(config)
  params = tiny.fresh(model)
  tied = tiny.fresh(tiny.MODEL)
  extra = sum(x.size for x in jax.tree.leaves(params)) - sum(
    x.size for x in jax.tree.leaves(tied)
  )
  assert extra == config.vocab_size * config.embed_dim
  logits, _ = jax.jit(model.apply)(params, TOKENS, POSITIONS)
  assert logits.shape == (2, 3, 7, 260) and np.all(np.isfinite(logits))


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"num_kv_heads": 3}, "num_kv_heads is 3; it must divide"),
    ({"head_dim": 7}, "head_dim is 7; it must be even"),
    ({"rope_theta": 0.0}, "rope_theta is 0.0"),
    ({"num_layers": 0}, "num_layers is 0; it must be at least 1"),
    ({"vocab_size": 2**31}, "vocab_size is 2147483648; it must be .* below 2147483648"),
  ],
)
def test_bad_sizes(changes, message):
  with pytest.raises(ValueError, match=message):
    dataclasses.replace(tiny.CONFIG, **changes)
