"""Single steps of the decoding loop: how slots are filled, emptied and left idle."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pgax.models.cache import NEVER
from pgax.models.prompts import read_prompts
from pgax.sampling import Options
from pgax.sampling.loop import DecodeInputs, decode_step, has_unfinished, start_decoding
from pgax.sampling.options import canonical
from tests import tiny

SLOTS, LENGTH = 2, 3
NO_EOS, ONLY_EOS = np.array([-1]), np.arange(tiny.CONFIG.vocab_size)
# One lane of two prompts with two completions each: jobs 0 and 1, then jobs 2 and 3.
TOKENS, MASK = tiny.prompts(lengths=(3, 5))
step = jax.jit(functools.partial(decode_step, tiny.MODEL))


@pytest.fixture(scope="module")
def prompts():
  """The prompts, read."""
  return read_prompts(tiny.MODEL, tiny.params(), TOKENS, MASK)


@pytest.fixture
def start(prompts):
  """Returns a function of EOS ids to the inputs and the first state."""

  def start(eos_ids):
    inputs = DecodeInputs(
      params=tiny.params(),
      options=canonical(Options(eos_ids)),
      keys=jax.random.split(jax.random.key(0), (1, 4)),
      prompt_lengths=jnp.asarray(MASK.sum(-1)[None]),
      prompt_hidden=prompts.hidden.reshape(1, 2, -1),
    )
    return inputs, start_decoding(inputs, prompts.cache, (1, SLOTS), LENGTH)

  return start


def test_the_first_jobs_of_the_queue_start(start):
  inputs, state = start(NO_EOS)
  np.testing.assert_array_equal(state.job, [[0, 1]])
  np.testing.assert_array_equal(state.queued, [2])
  np.testing.assert_array_equal(state.length, [[0, 0]])
  np.testing.assert_array_equal(state.cache.prefix_rows, [[0, 0]])  # both of prompt 0
  np.testing.assert_array_equal(state.hidden[0, 1], inputs.prompt_hidden[0, 0])
  assert np.all(state.cache.suffix.positions == NEVER) and has_unfinished(state)


def test_a_token_is_written_and_attended_to(start):
  state = step(*start(NO_EOS))
  np.testing.assert_array_equal(state.job, [[0, 1]])
  np.testing.assert_array_equal(state.length, [[1, 1]])
  np.testing.assert_array_equal(state.output.lengths, [[1, 1, 0, 0]])
  assert np.all(state.output.logp[0, :2, 0] < 0) and not state.output.finished.any()
  # The token follows the three tokens of its prompt.
  np.testing.assert_array_equal(state.cache.suffix.positions[0], [[3, NEVER, NEVER]] * 2)
  assert int(state.step) == int(state.cache.index) == 1


def test_an_ended_slot_takes_the_next_job(start):
  inputs, state = start(NO_EOS)
  state = state._replace(length=jnp.array([[LENGTH - 1, 0]]))  # slot 0 is at the limit
  state = step(inputs, state)
  np.testing.assert_array_equal(state.job, [[2, 1]])
  np.testing.assert_array_equal(state.queued, [3])
  np.testing.assert_array_equal(state.length, [[0, 1]])
  np.testing.assert_array_equal(state.output.lengths, [[LENGTH, 1, 0, 0]])
  assert not state.output.finished.any()  # it was truncated
  # Slot 0 starts from prompt 1, with an empty suffix; slot 1 keeps its token.
  np.testing.assert_array_equal(state.cache.prefix_rows, [[1, 0]])
  np.testing.assert_array_equal(state.hidden[0, 0], inputs.prompt_hidden[0, 1])
  assert np.all(state.cache.suffix.positions[0, 0] == NEVER)
  assert state.cache.suffix.positions[0, 1, 0] == 3


def test_a_slot_past_the_queue_is_idle(start):
  inputs, state = start(ONLY_EOS)  # every token ends its completion
  state = step(inputs, step(inputs, state))
  np.testing.assert_array_equal(state.job, [[4, 5]])  # there are four jobs
  np.testing.assert_array_equal(state.output.lengths, [[1, 1, 1, 1]])
  assert state.output.finished.all() and not has_unfinished(state)
  after = step(inputs, state)
  np.testing.assert_array_equal(after.job, state.job)
  jax.tree.map(np.testing.assert_array_equal, after.output, state.output)


def test_decoding_ends_when_all_slots_are_idle(start):
  _, state = start(NO_EOS)
  assert has_unfinished(state._replace(job=jnp.array([[5, 1]])))
  assert not has_unfinished(state._replace(job=jnp.array([[5, 4]])))
