"""Rewards of tokens: the same scores as the rewards of text, on random completions."""

import jax
import numpy as np
import pytest

from pgax.data import byte_tokenizer
from pgax.data.tokenizer import decode, token_bytes
from pgax.rewards import final_answer
from pgax.rewards.tokens import byte_characters, final_answer_tokens, spelled_tokens
from pgax.tasks import ReasoningGym, addition, reasoning_gym
from pgax.types import Example

TOKENIZER = byte_tokenizer()
BYTES = token_bytes(TOKENIZER, 259)
CHARACTERS = byte_characters(BYTES)
COUNT, LENGTH = 400, 24


def ids(text):
  return [int(np.flatnonzero(byte == CHARACTERS)[0]) for byte in text.encode()]


def completions(rng, examples, pieces):
  """Random texts: pieces put together, with special tokens and other bytes thrown in."""
  tokens = np.zeros((len(examples), COUNT, LENGTH), np.int32)
  mask = np.zeros(tokens.shape, bool)
  for n, example in enumerate(examples):
    words = [example.ground_truth, example.ground_truth[:-1], *pieces]
    for k in range(COUNT):
      text = [
        x for i in rng.integers(0, len(words), rng.integers(0, 9)) for x in ids(words[i])
      ]
      if rng.random() < 0.3:
        text.insert(rng.integers(0, len(text) + 1), rng.integers(0, 3 + 128))
      text = text[:LENGTH]
      tokens[n, k, : len(text)] = text
      mask[n, k, : len(text)] = True
  return tokens, mask


def of_text(reward, examples, tokens, mask):
  scores = [
    reward(x.prompt, decode(TOKENIZER, row[real]), x.ground_truth, x.metadata)
    for x, rows, reals in zip(examples, tokens, mask, strict=True)
    for row, real in zip(rows, reals, strict=True)
  ]
  return {name: np.array([x[name] for x in scores], np.float32) for name in scores[0]}


def check_equal(text_reward, token_reward, examples, tokens, mask):
  answers = [token_reward.answer_tokens(example) for example in examples]
  width = max(map(len, answers))
  answers = np.array([[*x, *[0] * (width - len(x))] for x in answers])
  prompts = np.ones((len(examples), 1), np.int32)
  found = jax.jit(token_reward)(prompts, tokens, mask, answers)
  expected = of_text(text_reward, examples, tokens, mask)
  assert found.keys() == expected.keys()
  for name, values in expected.items():
    np.testing.assert_array_equal(np.asarray(found[name]).ravel(), values, err_msg=name)
  assert len(np.unique(expected["reward"])) > 1  # both kinds are among them


@pytest.mark.parametrize("seed", [0, 1])
def test_final_answer_is_that_of_text(seed):
  rng = np.random.default_rng(seed)
  pieces = ["#### ", "####", "#", " ", "\n", ",", ".", "-", "+", "$", "0", "00", "1", "a"]
  truths = ["0", "7", "132", "1234", "1000", "1234567"]
  examples = [Example("1+1=", truth) for truth in truths]
  tokens, mask = completions(rng, examples, [*pieces, "1,234", "1,234,567", "#### 132"])
  check_equal(final_answer, final_answer_tokens(BYTES), examples, tokens, mask)


def test_final_answer_of_solutions():
  task = addition(digits=2, forget_carry=0.5)
  assert task.token_reward is final_answer_tokens
  examples = [task.train[i] for i in range(0, 8000, 200)]
  tokens = np.zeros((len(examples), 1, 32), np.int32)
  for row, example in zip(tokens, examples, strict=True):
    solution = [*ids(example.solution), TOKENIZER.eos_token_id]
    row[0, : len(solution)] = solution
  check_equal(final_answer, task.token_reward(BYTES), examples, tokens, tokens > 0)


def test_spelling_is_that_of_text():
  pytest.importorskip("reasoning_gym")
  settings = {"min_word_len": 3, "max_word_len": 6}
  task = reasoning_gym("spell_backward", settings, train_size=40, held_out_size=4)
  examples = [task.train[i] for i in range(6)]
  pieces = [" ", "#### ", "####", "\n", "a", "e", "S", "<answer>", "</answer>", "<answer"]
  tokens, mask = completions(np.random.default_rng(0), examples, pieces)
  assert task.token_reward is spelled_tokens
  check_equal(ReasoningGym(), spelled_tokens(BYTES), examples, tokens, mask)


def test_tokens_of_several_bytes_are_rejected():
  with pytest.raises(ValueError, match="token 1 is b'ab'; .* single bytes"):
    byte_characters([b"", b"ab"])


def test_an_answer_that_is_no_whole_number_is_rejected():
  with pytest.raises(ValueError, match="ground_truth is '1.5'"):
    final_answer_tokens(BYTES).answer_tokens(Example("", "1.5"))
