"""The sampler of a run: settings reach it, and texts end where settings say so."""

import jax
import numpy as np
import pytest

from pgax.data import CollatePrompts, byte_tokenizer
from pgax.errors import UserError
from pgax.rollout import SamplingConfig
from pgax.rollout.sampler import make_sampler
from pgax.rollout.scoring import completion_texts
from pgax.types import Example
from tests import tiny

TOKENIZER = byte_tokenizer()
PROMPTS = CollatePrompts(TOKENIZER, 5)([Example(f"{i}+1=", "") for i in range(4)])
A, B, C = TOKENIZER.convert_tokens_to_ids(["a", "b", "c"])


def drawn(sampler, key=0, temperature=1.0, group=4):
  key = jax.random.key(key)
  return sampler(tiny.params(), PROMPTS, key, temperature=temperature, group=group)


def test_greedy_at_zero():
  sampler = tiny.sampler(max_completion_tokens=4)
  one, two = (drawn(sampler, key, temperature=0.0, group=2) for key in (0, 1))
  np.testing.assert_array_equal(one.tokens, two.tokens)


def test_stop_strings_end_texts():
  bias = ((A, 40.0), (B, 40.0), (C, 40.0))
  settings = {
    "max_completion_tokens": 12,
    "logit_bias": bias,
    "stop_strings": ("ab", "ca"),
  }
  one_by_one = drawn(tiny.sampler(prompts_per_step=4, group_size=4, slots=2, **settings))
  rollout = drawn(tiny.sampler(**settings))
  np.testing.assert_array_equal(one_by_one.tokens, rollout.tokens)
  texts = completion_texts(
    TOKENIZER, np.asarray(rollout.tokens), np.asarray(rollout.action_mask)
  )
  flat = [text for group in texts for text in group]
  for text, finished in zip(flat, np.ravel(rollout.finished), strict=True):
    assert text.endswith(("ab", "ca")) == finished
    assert not {"ab", "ca"} & {text[i : i + 2] for i in range(len(text) - 2)}
  assert rollout.finished.any()


def test_every_setting_reaches_the_options():
  settings = {"top_k": 3, "top_p": 0.5, "min_p": 0.25, "min_tokens": 2}
  sampler = tiny.sampler(
    **settings, stop_strings=("ab",), banned_tokens=(7,), logit_bias=[(8, 1.5)]
  )
  options = vars(sampler.options)
  assert {name: options[name] for name in settings} == settings
  assert options["stop"].shape == (3, 260)
  assert options["logit_bias"][7] == -np.inf and options["logit_bias"][8] == 1.5
  np.testing.assert_array_equal(options["eos_ids"], [TOKENIZER.eos_token_id])
  plain = tiny.sampler()
  assert plain.options.logit_bias is None and plain.options.stop is None
  named = make_sampler(SamplingConfig(), tiny.MODEL, TOKENIZER, plain.mesh, (4, 5))
  np.testing.assert_array_equal(named.options.eos_ids, [4, 5])


@pytest.mark.parametrize(
  ("settings", "message"),
  [
    ({"top_k": -1}, "top_k is -1"),
    ({"top_p": 0.0}, r"top_p is 0\.0; it must be above 0"),
    ({"top_p": float("nan")}, "top_p is nan"),
    ({"min_p": 1.5}, r"min_p is 1\.5; it must be in"),
    ({"min_tokens": 512}, "min_tokens is 512 and max_completion_tokens is 512"),
    ({"slots": 257}, "slots is 257; a step has 256 completions"),
    ({"stop_strings": ("a", "")}, "each must be a string that is not empty"),
    ({"stop_strings": "ab,"}, "stop_strings is 'ab,'; it must be a tuple of strings"),
    ({"logit_bias": ((1, 2, 3),)}, "logit_bias is .*pairs"),
  ],
)
def test_bad_settings(settings, message):
  with pytest.raises(ValueError, match=message):
    SamplingConfig(**settings)


def test_banned_tokens_must_exist():
  with pytest.raises(UserError, match=r"sampling\.banned_tokens: token id 260"):
    tiny.sampler(banned_tokens=(260,))
