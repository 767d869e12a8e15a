"""Rewards of steps land on the tokens that end the steps."""

import numpy as np
import pytest

from pgax.data import byte_tokenizer
from pgax.data.prompts import CollatePrompts, pad
from pgax.data.tokenizer import encode_completion
from pgax.errors import UserError
from pgax.rollout.scoring import completion_texts
from pgax.rollout.step_rewards import step_rewards
from pgax.tasks import addition_steps
from pgax.types import Example, StepReward

TOKENIZER = byte_tokenizer()
PROMPTS = CollatePrompts(TOKENIZER, 7)([Example("87+45=", "132")])
TEXTS = ["7+5=12 8+4+0=12 #### 122", "7+5=12 8+4+1=13", "é é"]


def call(reward, texts=TEXTS, cut=0):
  rows = [encode_completion(TOKENIZER, text) for text in texts]
  rows = [row[: len(row) - cut] for row in rows]
  tokens, mask = pad(rows, 32)
  decoded = completion_texts(TOKENIZER, tokens[None], mask[None])
  rewards, ends = step_rewards(
    reward, TOKENIZER, PROMPTS, decoded, tokens[None], mask[None]
  )
  return rewards[0], ends[0]


def test_at_the_last_token_of_each_step():
  rewards, ends = call(addition_steps)
  assert np.flatnonzero(ends[0]).tolist() == [5, 14, 24]  # EOS belongs to the last step
  assert rewards[0][ends[0]].tolist() == [1, 0, 0]
  assert np.flatnonzero(ends[1]).tolist() == [5, 15]
  assert np.all(rewards[~ends] == 0)


def test_a_completion_that_was_cut_has_no_eos():
  _, ends = call(addition_steps, cut=1)
  assert np.flatnonzero(ends[0]).tolist() == [5, 14, 23]


def test_characters_of_several_tokens():
  def words(prompt, completion, truth, metadata):
    return [StepReward(1, 2.0), StepReward(2, 3.0)]

  rewards, ends = call(words, texts=["é é"])
  assert np.flatnonzero(ends[0]).tolist() == [1, 2]  # two bytes, then a space
  assert rewards[0][[1, 2]].tolist() == [2.0, 3.0]


def test_two_steps_at_one_token_add_up():
  rewards, ends = call(lambda *_: [StepReward(3, 1.0), StepReward(3, 0.5)], ["abcd"])
  assert ends[0].sum() == 1 and rewards[0, 2] == 1.5


@pytest.mark.parametrize(
  ("step", "message"),
  [
    (StepReward(0, 1.0), "ends at 0 with reward 1.0; the completion has 4"),
    (StepReward(5, 1.0), "ends at 5"),
    (StepReward(2, float("nan")), "reward nan"),
  ],
)
def test_what_can_not_be_a_step_is_rejected(step, message):
  with pytest.raises(UserError, match=message):
    call(lambda *_: [step], ["abcd"])
