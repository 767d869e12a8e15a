"""Preference pairs: files, generated sums, and arrays."""

import json

import numpy as np
import pytest

from pgax.data import (
  CollateDemonstrations,
  CollatePrompts,
  addition_preferences,
  byte_tokenizer,
  preference_files,
)
from pgax.data.preferences import CollatePreferences, Preference, Preferences

GOOD = {"prompt": "a", "chosen": "bc", "rejected": "d", "margin": 3}


def write(path, *rows):
  lines = [row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows]
  path.write_bytes(b"".join(line + b"\n" for line in lines))
  return str(path)


def test_files(tmp_path):
  one = write(tmp_path / "one.jsonl", GOOD, GOOD | {"chosen": "\u2028 e"})
  two = write(tmp_path / "two.jsonl", GOOD | {"chosen": "f"})
  found = preference_files(one, two)
  assert found.train == [Preference("a", "bc", "d"), Preference("a", "\u2028 e", "d")]
  assert found.held_out == [Preference("a", "f", "d")]
  both = write(tmp_path / "both.jsonl", GOOD | {"chosen": "\u2028 e"})
  with pytest.raises(ValueError, match=r"1 pairs stand in both splits.*one.jsonl:2"):
    preference_files(one, both)
  with pytest.raises(ValueError, match=r"none.jsonl has no preference pairs"):
    preference_files(one, write(tmp_path / "none.jsonl"))


@pytest.mark.parametrize(
  ("row", "told"),
  [
    (b"{", "bad.jsonl:2: expected a JSON object with the strings prompt, chosen, rejected"),
    (b"[1]", "bad.jsonl:2: expected a JSON object"),
    ({"prompt": "a", "chosen": "b"}, "bad.jsonl:2: .* KeyError: 'rejected'"),
    (GOOD | {"chosen": 3}, "bad.jsonl:2: chosen is 3; it must be a string"),
    (GOOD | {"rejected": ""}, "bad.jsonl:2: rejected is ''"),
    (GOOD | {"rejected": "bc"}, "bad.jsonl:2: chosen and rejected are the same"),
    (b'{"prompt": "\xff"}', "bad.jsonl:2: .* UnicodeDecodeError"),
    pytest.param(b'{"a": ' * 100_000, "bad.jsonl:2: .* nested too deeply", id="deep"),
    (GOOD | {"chosen": "\ud800"}, "bad.jsonl:2: chosen is not UTF-8: surrogates"),
  ],
)
def test_bad_rows_are_named(tmp_path, row, told):
  with pytest.raises(ValueError, match=told):
    preference_files(write(tmp_path / "bad.jsonl", GOOD, row), "")


def test_no_pairs():
  with pytest.raises(ValueError, match="split 'held_out' of the preferences is empty"):
    Preferences([Preference("a", "b", "c")], [])


def test_sums_with_something_to_carry():
  found = addition_preferences(digits=2)
  prompts = []
  for pairs in (found.train, found.held_out):
    prompts.append({pair.prompt for pair in pairs})
    for pair in pairs:
      a, b = map(int, pair.prompt.rstrip("=").split("+"))
      assert a % 10 + b % 10 >= 10
      answers = [int(x.rpartition(" ")[2]) for x in (pair.chosen, pair.rejected)]
      assert answers == [a + b, a + b - 10]
  assert not prompts[0] & prompts[1] and len(prompts[0] | prompts[1]) == 45 * 100
  with pytest.raises(ValueError, match="digits is 1; allowed are 2 to 4"):
    addition_preferences(1)


def test_arrays():
  tokenizer = byte_tokenizer()
  collate = CollatePreferences(CollateDemonstrations(CollatePrompts(tokenizer, 4), 5))
  batch = collate([Preference("a", "bc", "d"), Preference("ef", "g", "hij")])
  assert batch.tokens.shape == batch.mask.shape == (2, 2, 5)
  assert batch.mask.sum(-1).tolist() == [[3, 2], [2, 4]]
  assert batch.tokens[0, 0, :3].tolist() == [*tokenizer("bc").input_ids[1:], 2]
  assert batch.prompts.mask.sum(-1).tolist() == [2, 3]
  assert np.all(batch.tokens[~batch.mask] == 0)
  with pytest.raises(ValueError, match="'toolong' has 8 tokens; max_tokens allows 5"):
    collate([Preference("a", "b", "toolong")])
