"""The sampler: agreement with the trainer, with the softmax, and with itself."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pgax import logprobs
from pgax.models import Decoder, completion_logits
from pgax.sampling import sample
from pgax.sampling.logits import next_token
from tests import tiny

TOKENS, MASK = tiny.prompts()
NO_EOS, GROUP, LENGTH = np.array([-1], np.int32), 4, 8


def draw(key=0, temperature=1.0, eos=NO_EOS, tokens=TOKENS, mask=MASK, model=tiny.MODEL):
  return sample(
    model,
    tiny.params(),
    tokens,
    mask,
    jax.random.key(key),
    eos,
    np.float32(temperature),
    group=GROUP,
    max_tokens=LENGTH,
  )


@pytest.fixture(scope="module")
def rollout():
  return draw()


def trainer_logp(rollout, temperature):
  logits = completion_logits(
    tiny.MODEL,
    tiny.params(),
    rollout.prompt_tokens,
    rollout.prompt_mask,
    rollout.tokens,
    rollout.mask,
  )
  return logprobs.token_logp(logprobs.log_softmax(logits, temperature), rollout.tokens)


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_logp_is_the_trainers(temperature):
  some = draw(temperature=temperature)
  mask = np.asarray(some.mask)
  np.testing.assert_allclose(
    some.logp[mask], trainer_logp(some, temperature)[mask], atol=2e-5
  )
  np.testing.assert_array_equal(some.logp, some.sample_logp)


def test_a_new_key_draws_anew_and_the_same_key_the_same(rollout):
  np.testing.assert_array_equal(draw().tokens, rollout.tokens)
  assert np.any(draw(key=1).tokens != rollout.tokens)
  for tokens in rollout.tokens:  # no two completions of a prompt are copies
    assert len(np.unique(tokens, axis=0)) == GROUP


def test_eos_is_counted_and_ends_the_completion(rollout):
  # Let a token that was drawn in mid-completion end it, on the very same draws.
  tokens = np.asarray(rollout.tokens)
  eos = tokens[:2, 0, 3]
  ended = draw(eos=eos)
  for n, k in np.ndindex(tokens.shape[:2]):
    hits = np.flatnonzero(np.isin(tokens[n, k], eos))
    length = hits[0] + 1 if len(hits) else LENGTH
    assert bool(ended.finished[n, k]) == bool(len(hits))
    np.testing.assert_array_equal(ended.mask[n, k], np.arange(LENGTH) < length)
    np.testing.assert_array_equal(ended.tokens[n, k, :length], tokens[n, k, :length])
    for array in (ended.tokens, ended.logp, ended.sample_logp):
      assert np.all(np.asarray(array)[n, k, length:] == 0)
  assert ended.finished.any() and not ended.finished.all()


class Counting(Decoder):
  """A decoder that tells of every token that it is asked to read while decoding."""

  def __call__(self, *args):
    jax.debug.callback(lambda: calls.append(1))
    return super().__call__(*args)


calls = []


@pytest.mark.parametrize(
  ("eos", "steps"), [(np.arange(260, dtype=np.int32), 1), (NO_EOS, LENGTH)]
)
def test_stops_when_all_are_done(eos, steps):
  calls.clear()
  some = draw(eos=eos, model=Counting(tiny.CONFIG))
  jax.effects_barrier()
  assert np.all(np.asarray(some.mask).sum(-1) == steps)
  assert len(calls) == steps


def test_greedy_takes_the_likeliest():
  greedy = draw(temperature=0.0)
  logits = completion_logits(
    tiny.MODEL, tiny.params(), TOKENS, MASK, greedy.tokens, greedy.mask
  )
  np.testing.assert_array_equal(greedy.tokens, jnp.argmax(logits, -1))
  assert np.all(np.asarray(greedy.sample_logp) == 0)
  np.testing.assert_allclose(greedy.logp, trainer_logp(greedy, 1.0), atol=2e-5)
  np.testing.assert_array_equal(draw(key=5, temperature=0.0).tokens, greedy.tokens)


def test_each_prompt_as_if_it_were_alone():
  together = draw(temperature=0.0)
  for n, length in enumerate(MASK.sum(-1)):
    alone = draw(
      temperature=0.0,
      tokens=TOKENS[n : n + 1, :length],
      mask=MASK[n : n + 1, :length],
    )
    np.testing.assert_array_equal(alone.tokens[0], together.tokens[n])
    np.testing.assert_allclose(alone.logp[0], together.logp[n], atol=1e-5)


def test_frequencies_match_the_softmax():
  logits = jnp.log(jnp.array([0.5, 0.3, 0.15, 0.05]))
  for temperature in (1.0, 0.5):
    drawn = next_token(
      jnp.broadcast_to(logits, (20_000, 4)), jax.random.key(0), temperature
    )
    p = np.exp(logits / temperature)
    expected = 20_000 * p / p.sum()
    counts = np.bincount(drawn.token, minlength=4)
    chi_squared = np.sum((counts - expected) ** 2 / expected)
    assert chi_squared < 16.3  # 0.1 % of draws with 3 degrees of freedom go beyond


def test_traced_once():
  draw()
  before = sample._cache_size()
  for key, temperature, eos in ((1, 0.7, 5), (2, 0.0, 9), (3, 1.0, 2)):
    draw(key, temperature, np.array([eos], np.int32))
  assert sample._cache_size() == before


def test_prompts_are_checked():
  with pytest.raises(AssertionError):
    draw(mask=MASK[:2])
  with pytest.raises(AssertionError):
    draw(eos=np.int32(2))
