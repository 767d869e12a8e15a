"""Fewer slots for the last completions change no completion, and save work."""

import functools

import jax
import numpy as np
import pytest

from pgax.sampling import Options, decode, sample_counted, tail
from tests import tiny

TOKENS, MASK = tiny.prompts()
GROUP, LENGTH = 4, 12
ENDS = np.arange(100, 130, dtype=np.int32)  # a ninth of the vocabulary


def draw(slots, lanes, **options):
  return sample_counted(
    tiny.MODEL,
    tiny.params(),
    TOKENS,
    MASK,
    jax.random.key(1),
    Options(ENDS, **options),
    group=GROUP,
    max_tokens=LENGTH,
    slots=slots,
    lanes=lanes,
  )


def tails(monkeypatch, width):
  """Makes every lane have so many slots in its tail."""
  monkeypatch.setattr(decode, "tail_width", lambda slots, max_tokens: width)
  decode._decode.clear_cache()


@pytest.fixture(autouse=True)
def other_tests_compile_their_own():
  yield
  decode._decode.clear_cache()


@functools.cache
def without_tail():
  return draw(0, 1)


@pytest.mark.parametrize("unrolled", [False, True])
@pytest.mark.parametrize(
  ("slots", "lanes", "width"), [(0, 1, 4), (0, 2, 4), (6, 1, 3), (8, 2, 3)]
)
def test_the_tail_changes_no_completion(monkeypatch, unrolled, slots, lanes, width):
  whole, counts = without_tail()
  lengths = np.asarray(whole.token_mask).sum(-1)
  assert lengths.min() < 3 and np.sum(lengths > 8) > 2  # there is a tail
  monkeypatch.setattr(decode, "decodes_unrolled", lambda model: unrolled)
  tails(monkeypatch, width)
  rollout, fewer = draw(slots, lanes)
  for name in ("tokens", "token_mask", "action_mask", "finished"):
    np.testing.assert_array_equal(vars(rollout)[name], vars(whole)[name])
  np.testing.assert_allclose(rollout.logp, whole.logp, atol=1e-5)
  assert fewer.places < fewer.steps * (slots or 16)
  if not slots:
    assert fewer.steps == counts.steps


def test_completions_of_one_length_have_no_tail(monkeypatch):
  tails(monkeypatch, 4)
  rollout, counts = draw(0, 1, min_tokens=LENGTH)
  assert rollout.token_mask.all() and counts.places == LENGTH * 16


def test_small_batches_and_short_completions_have_no_tail():
  widths = [tail.tail_width(*sizes) for sizes in ((15, 1024), (64, 63), (64, 64))]
  assert widths == [0, 0, 16]
