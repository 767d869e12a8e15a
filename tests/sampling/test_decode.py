"""The sampler agrees with the trainer, and with itself for any number of slots."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pgax import logprobs
from pgax.sampling import Options, decode, logit_bias, sample, sample_counted
from tests import tiny
from tests.logits import completion_logits

TOKENS, MASK = tiny.prompts()
NO_EOS, GROUP, LENGTH = np.array([-1], np.int32), 4, 8


def draw(
  key=0,
  tokens=TOKENS,
  mask=MASK,
  slots=0,
  lanes=1,
  counted=False,
  fixed_steps=False,
  **options,
):
  key = jax.random.key(key) if isinstance(key, int) else key
  function = sample_counted if counted else sample
  return function(
    tiny.MODEL,
    tiny.params(),
    tokens,
    mask,
    key,
    Options(**({"eos_ids": NO_EOS} | options)),
    group=GROUP,
    max_tokens=LENGTH,
    slots=slots,
    lanes=lanes,
    fixed_steps=fixed_steps,
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
    rollout.token_mask,
  )
  return logprobs.token_logp(logprobs.log_softmax(logits, temperature), rollout.tokens)


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_logp_is_the_trainers(temperature):
  rollout = draw(temperature=temperature)
  mask = np.asarray(rollout.token_mask)
  np.testing.assert_allclose(
    rollout.logp[mask], trainer_logp(rollout, temperature)[mask], atol=2e-5
  )
  np.testing.assert_array_equal(rollout.logp, rollout.sample_logp)


def test_logp_is_the_policys_and_sample_logp_the_truncated_one():
  rollout = draw(temperature=0.7, top_k=3)
  np.testing.assert_allclose(rollout.logp, trainer_logp(rollout, 0.7), atol=2e-5)
  assert np.all(rollout.sample_logp > rollout.logp)
  logits = completion_logits(
    tiny.MODEL, tiny.params(), TOKENS, MASK, rollout.tokens, rollout.token_mask
  )
  best = jax.lax.top_k(logprobs.log_softmax(logits, 0.7), 3)[0]
  expected = rollout.logp - jax.nn.logsumexp(best, axis=-1)
  np.testing.assert_allclose(rollout.sample_logp, expected, atol=2e-5)


def test_a_new_key_gives_new_samples_and_the_same_key_the_same(rollout):
  np.testing.assert_array_equal(draw().tokens, rollout.tokens)
  assert np.any(draw(key=1).tokens != rollout.tokens)
  for tokens in rollout.tokens:  # no two completions of a prompt are copies
    assert len(np.unique(tokens, axis=0)) == GROUP


def test_a_prompts_key_alone_decides_its_completions():
  keys = jax.random.split(jax.random.key(3), len(TOKENS))
  plain, order = draw(keys), np.array([2, 0, 3, 1])
  reordered = draw(keys[order], TOKENS[order], MASK[order])
  np.testing.assert_array_equal(reordered.tokens, plain.tokens[order])
  assert np.any(draw(keys[order]).tokens != plain.tokens)


# With these EOS ids completions have many lengths; samples are the same otherwise.
ENDS = np.arange(3, 259, 6, dtype=np.int32)


def test_eos_is_counted_and_ends_the_completion(rollout):
  tokens, ended = np.asarray(rollout.tokens), draw(eos_ids=ENDS)
  for n, k in np.ndindex(tokens.shape[:2]):
    hits = np.flatnonzero(np.isin(tokens[n, k], ENDS))
    length = hits[0] + 1 if len(hits) else LENGTH
    assert bool(ended.finished[n, k]) == bool(len(hits))
    np.testing.assert_array_equal(ended.token_mask[n, k], np.arange(LENGTH) < length)
    np.testing.assert_array_equal(ended.tokens[n, k, :length], tokens[n, k, :length])
    for array in (ended.tokens, ended.logp, ended.sample_logp):
      assert np.all(np.asarray(array)[n, k, length:] == 0)
  assert ended.finished.any() and not ended.finished.all()


@pytest.mark.parametrize(("slots", "lanes"), [(3, 1), (4, 2), (8, 4)])
def test_slots_and_order_change_nothing(slots, lanes):
  together = draw(eos_ids=ENDS)
  queued, counts = draw(eos_ids=ENDS, slots=slots, lanes=lanes, counted=True)
  for name in ("tokens", "token_mask", "action_mask", "finished"):
    np.testing.assert_array_equal(vars(queued)[name], vars(together)[name])
  np.testing.assert_allclose(queued.logp, together.logp, atol=1e-5)
  lengths = np.asarray(queued.token_mask).sum(-1).reshape(lanes, -1)
  assert counts.steps == max(_steps(x, slots // lanes) for x in lengths)
  assert counts.places == counts.steps * slots


def _steps(lengths, slots):
  """Number of steps if the first free slot takes the next completion."""
  free_at = [0] * slots
  for length in lengths:
    free_at[np.argmin(free_at)] += length
  return max(free_at)


def test_slots_take_less_memory():
  def memory(shape):
    lowered = decode._decode.lower(
      tiny.MODEL,
      tiny.params(),
      TOKENS,
      MASK,
      jax.random.split(jax.random.key(0), 4),
      decode.canonical(Options(NO_EOS)),
      shape=shape,
      tail_lanes=1,
      group=64,
      max_tokens=64,
    )
    return lowered.compile().memory_analysis().temp_size_in_bytes

  token = 2 * 2 * 2 * 8 * 4  # layers, keys and values, heads, width, bytes
  saved = memory((4, 64)) - memory((1, 16))
  assert saved > (4 * 64 - 16) * 64 * token


@pytest.mark.parametrize(
  ("eos", "steps"), [(np.arange(260, dtype=np.int32), 1), (NO_EOS, LENGTH)]
)
def test_stops_when_all_completions_have_ended(eos, steps):
  rollout, counts = draw(eos_ids=eos, counted=True)
  assert np.all(np.asarray(rollout.token_mask).sum(-1) == steps)
  assert counts.steps == steps


def test_a_fixed_number_of_steps_changes_no_sample():
  until_done = draw(eos_ids=ENDS)
  fixed = draw(eos_ids=ENDS, fixed_steps=True)
  jax.tree.map(np.testing.assert_array_equal, fixed, until_done)
  with pytest.raises(ValueError, match="slots is 4 of 16 .* fixed_steps is True"):
    draw(slots=4, fixed_steps=True)


def test_no_completion_is_shorter_than_the_minimum():
  rollout = draw(eos_ids=ENDS, min_tokens=4)
  lengths = np.asarray(rollout.token_mask).sum(-1)
  assert lengths.min() > 4 and rollout.finished.any()
  early = np.asarray(rollout.tokens)[..., :4]
  assert not np.isin(early, ENDS).any()
  # The policy allowed EOS all the time; the distribution sampled from did not.
  assert np.all(np.asarray(rollout.sample_logp > rollout.logp)[..., :4])
  real = np.asarray(rollout.token_mask)[..., 4:]
  np.testing.assert_array_equal(
    rollout.sample_logp[..., 4:][real], rollout.logp[..., 4:][real]
  )


def test_stop_strings():
  # A table of two states: token 7 after token 5 ends the completion. Bias favors both.
  table = np.zeros((2, 260), np.int32)
  table[:, 5], table[1, 7] = 1, 2
  bias = logit_bias(260, {5: 30.0, 7: 30.0, 9: 30.0}, ())
  plain = draw(logit_bias=bias)
  for minimum in (0, 6):  # the pair occurs before 6 tokens only
    rollout = draw(logit_bias=bias, stop=jnp.asarray(table), min_tokens=minimum)
    tokens = np.asarray(plain.tokens)
    for n, k in np.ndindex(tokens.shape[:2]):
      pairs = (tokens[n, k, :-1] == 5) & (tokens[n, k, 1:] == 7)
      ends = [x for x in np.flatnonzero(pairs) + 2 if x >= minimum]
      assert bool(rollout.finished[n, k]) == bool(ends)
      assert rollout.token_mask[n, k].sum() == (ends[0] if ends else LENGTH)
    assert rollout.finished.any() == (minimum < 6) and not rollout.finished.all()


def test_greedy_takes_the_most_likely_token():
  greedy = draw(temperature=0.0)
  logits = completion_logits(
    tiny.MODEL, tiny.params(), TOKENS, MASK, greedy.tokens, greedy.token_mask
  )
  np.testing.assert_array_equal(greedy.tokens, jnp.argmax(logits, -1))
  assert np.all(np.asarray(greedy.sample_logp) == 0)
  np.testing.assert_allclose(greedy.logp, trainer_logp(greedy, 1.0), atol=2e-5)
  np.testing.assert_array_equal(draw(key=5, temperature=0.0).tokens, greedy.tokens)


def test_other_prompts_make_no_difference():
  together = draw(temperature=0.0)
  for n, length in enumerate(MASK.sum(-1)):
    alone = draw(
      temperature=0.0,
      tokens=TOKENS[n : n + 1, :length],
      mask=MASK[n : n + 1, :length],
    )
    np.testing.assert_array_equal(alone.tokens[0], together.tokens[n])
    np.testing.assert_allclose(alone.logp[0], together.logp[n], atol=1e-5)


def test_traced_once():
  draw()
  before = decode._decode._cache_size()
  for key, temperature, eos, k, p in (
    (1, 0.7, 5, 3, 1),
    (2, 0, 9, 0, 0.5),
    (3, 1.0, 2, 1, 1.0),
  ):
    draw(
      key,
      temperature=temperature,
      eos_ids=np.array([eos]),
      top_k=k,
      top_p=np.float32(p),
      min_p=0.1 * k,
      min_tokens=k,
    )
  assert decode._decode._cache_size() == before


def test_arguments_are_checked():
  with pytest.raises(AssertionError):
    draw(mask=MASK[:2])
  with pytest.raises(AssertionError):
    draw(eos_ids=np.int32(2))
  with pytest.raises(ValueError, match="slots is 17; it must be from 0 to .* 16"):
    draw(slots=17)
  with pytest.raises(
    ValueError, match="lanes is 2; it must divide the 4 prompts and the 3"
  ):
    draw(slots=3, lanes=2)
