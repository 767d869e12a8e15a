"""Rewards of tokens: the same scores as the rewards of text, on random completions."""

import jax
import numpy as np
import pytest

from pgax.data import byte_tokenizer
from pgax.data.tokenizer import decode, token_bytes
from pgax.rewards import final_answer
from pgax.rewards.expressions import parse_expression
from pgax.rewards.token_expressions import equals, parse_expressions
from pgax.rewards.token_text import byte_characters
from pgax.rewards.tokens import final_answer_tokens, spelled_tokens
from pgax.tasks import Countdown, ReasoningGym, addition, countdown, reasoning_gym
from pgax.tasks.countdown_tokens import countdown_tokens
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


@pytest.mark.parametrize(
  ("task", "reward", "token_reward"),
  [
    (addition(digits=2, forget_carry=0.5), final_answer, final_answer_tokens),
    (countdown(patience=0.4, tries=2), Countdown(), countdown_tokens),
  ],
)
def test_tasks_have_their_reward(task, reward, token_reward):
  assert task.token_reward is token_reward
  examples = [task.train[i] for i in range(0, 8000, 200)]
  tokens = np.zeros((len(examples), 1, 48), np.int32)
  for row, example in zip(tokens, examples, strict=True):
    solution = [*ids(example.solution), TOKENIZER.eos_token_id]
    row[0, : len(solution)] = solution
  check_equal(reward, task.token_reward(BYTES), examples, tokens, tokens > 0)


def test_spelling_is_that_of_text():
  pytest.importorskip("reasoning_gym")
  settings = {"min_word_len": 3, "max_word_len": 6}
  task = reasoning_gym("spell_backward", settings, train_size=40, held_out_size=4)
  examples = [task.train[i] for i in range(6)]
  pieces = [" ", "#### ", "####", "\n", "a", "e", "S", "<answer>", "</answer>", "<answer"]
  tokens, mask = completions(np.random.default_rng(0), examples, pieces)
  assert task.token_reward is spelled_tokens
  check_equal(ReasoningGym(), spelled_tokens(BYTES), examples, tokens, mask)


@pytest.mark.parametrize("options", [{}, {"use_all": False, "format_score": 0.1}])
@pytest.mark.parametrize("seed", [0, 1])
def test_countdown_is_that_of_text(options, seed):
  problems = {
    (4, 6): 24,
    (3, 3): 1,
    (3, 3, 8): 17,
    (1, 2, 3, 4): 24,
    (12, 7, 5): 60,
    (5,): 5,
  }
  examples = [
    Example("", str(target), metadata={"numbers": numbers})
    for numbers, target in problems.items()
  ]
  pieces = ["+", "-", "*", "/", "(", ")", " ", "#### ", "\n", "00", "x", "<answer>"]
  numbers = ["1", "2", "3", "4", "5", "6", "7", "8", "12"]
  common = [*numbers, *numbers, "+", "*", "3-3", "(", ")"]
  rng = np.random.default_rng(seed)
  tokens, mask = completions(rng, examples, [*pieces, *common])
  reward = countdown_tokens(BYTES, **options)
  check_equal(Countdown(**options), reward, examples, tokens, mask)


def expressions_of(rng, numbers):
  """Random expressions of the numbers, most of them with parentheses."""
  if len(numbers) == 1:
    text = str(numbers[0])
    return f"({text})" if rng.random() < 0.1 else text
  cut = rng.integers(1, len(numbers))
  left, right = expressions_of(rng, numbers[:cut]), expressions_of(rng, numbers[cut:])
  text = f"{left}{rng.choice(list('+-*/'))}{right}"
  return f"({text})" if rng.random() < 0.7 else text


@pytest.mark.parametrize("largest", [3, 1000])
def test_expressions_are_evaluated_exactly(largest):
  rng, texts, values = np.random.default_rng(largest), [], []
  for _ in range(1000):
    numbers = rng.integers(1, largest + 1, rng.integers(1, 5)).tolist()
    texts.append(expressions_of(rng, numbers))
    values.append(parse_expression(texts[-1]).value)
  characters = np.full((len(texts), max(map(len, texts))), -1, np.int32)
  for row, text in zip(characters, texts, strict=True):
    row[: len(text)] = list(text.encode())
  whole = [x is not None and x.denominator == 1 and 0 <= x < 2**31 for x in values]
  right = np.array([int(x) if y else 5 for x, y in zip(values, whole, strict=True)])
  parsed = parse_expressions(characters, 4)
  assert np.all(parsed.valid)
  for target in (right, right + 1):
    expected = [x == int(y) for x, y in zip(values, target, strict=True)]
    np.testing.assert_array_equal(jax.jit(equals)(parsed, target), expected)
  assert sum(whole) > 100 and (None in values or largest > 3)


def test_long_expressions_have_the_limits_of_text():
  nested = "(" * 48 + "7" + ")" * 48
  texts = [nested + "+1", f"({nested})+1", "123456789", "1234567890", "(1)2", "1 2", "()"]
  characters = np.full((len(texts), 101), -1, np.int32)
  for row, text in zip(characters, texts, strict=True):
    row[: len(text)] = list(text.encode())
  expected = [parse_expression(text) is not None for text in texts]
  assert expected == [True, False, True, False, False, False, False]
  np.testing.assert_array_equal(parse_expressions(characters, 4).valid, expected)


@pytest.mark.parametrize(
  ("target", "numbers", "message"),
  [
    ("0", (1, 2), "target 0 and numbers .1, 2. must all be positive"),
    (str(2**31), (2**16, 2**15), "are too large"),
    ("5", (10**9,) * 4, "are too large"),
    ("3", (2**32 + 3,), "are too large"),
    ("3", (), "has no 'numbers'"),
  ],
)
def test_countdown_rejects_what_it_cannot_evaluate(target, numbers, message):
  example = Example("", target, metadata={"numbers": numbers})
  with pytest.raises(ValueError, match=message):
    countdown_tokens(BYTES).answer_tokens(example)


def test_a_format_score_is_finite():
  with pytest.raises(ValueError, match="format_score is nan; it must be finite"):
    countdown_tokens(BYTES, format_score=float("nan"))


def test_tokens_of_several_bytes_are_rejected():
  with pytest.raises(ValueError, match="token 1 is b'ab'; .* single bytes"):
    byte_characters([b"", b"ab"])


def test_an_answer_that_is_no_whole_number_is_rejected():
  with pytest.raises(ValueError, match="ground_truth is '1.5'"):
    final_answer_tokens(BYTES).answer_tokens(Example("", "1.5"))
