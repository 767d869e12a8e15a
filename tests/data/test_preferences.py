"""Preference pairs: files and arrays."""

import json

import numpy as np
import pytest

from pgax.data import (
  CollateDemonstrations,
  CollatePrompts,
  byte_tokenizer,
  preference_files,
)
from pgax.data.preferences import CollatePreferences, Preference, Preferences

GOOD = {"prompt": "a", "chosen": "bc", "rejected": "d", "margin": 3}


def write(path, *rows):
  lines = [row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows]
  path.write_bytes(b"".join(line + b"\n" for line in lines))
  return str(path)


def test_pairs_are_read_from_two_files(tmp_path):
  one = write(tmp_path / "one.jsonl", GOOD, GOOD | {"chosen": "\u2028 e"})
  two = write(tmp_path / "two.jsonl", GOOD | {"chosen": "f"})
  preferences = preference_files(one, two)
  assert preferences.train == [Preference("a", "bc", "d"), Preference("a", "\u2028 e", "d")]
  assert preferences.held_out == [Preference("a", "f", "d")]
  both = write(tmp_path / "both.jsonl", GOOD | {"chosen": "\u2028 e"})
  with pytest.raises(ValueError, match=r"1 pairs are in both splits.*one.jsonl:2"):
    preference_files(one, both)
  with pytest.raises(ValueError, match=r"none.jsonl has no preference pairs"):
    preference_files(one, write(tmp_path / "none.jsonl"))


@pytest.mark.parametrize(
  ("row", "message"),
  [
    (b"{", "bad.jsonl:2: expected a JSON object with the strings prompt, chosen, rejected"),
    (b"[1]", "bad.jsonl:2: expected a JSON object"),
    ({"prompt": "a", "chosen": "b"}, "bad.jsonl:2: .* KeyError: 'rejected'"),
    (GOOD | {"chosen": 3}, "bad.jsonl:2: chosen is 3; it must be a nonempty string"),
    (GOOD | {"rejected": ""}, "bad.jsonl:2: rejected is ''"),
    (GOOD | {"rejected": "bc"}, "bad.jsonl:2: chosen and rejected are the same"),
    (b'{"prompt": "\xff"}', "bad.jsonl:2: .* UnicodeDecodeError"),
    pytest.param(b'{"a": ' * 100_000, "bad.jsonl:2: .* nested too deeply", id="deep"),
    (GOOD | {"chosen": "\ud800"}, "bad.jsonl:2: chosen is not UTF-8: surrogates"),
  ],
)
def test_bad_rows_are_named(tmp_path, row, message):
  with pytest.raises(ValueError, match=message):
    preference_files(write(tmp_path / "bad.jsonl", GOOD, row), "")


def test_an_empty_split_is_rejected():
  with pytest.raises(ValueError, match="split 'held_out' of the preferences is empty"):
    Preferences([Preference("a", "b", "c")], [])


def test_pairs_are_collated_into_arrays():
  tokenizer = byte_tokenizer()
  collate = CollatePreferences(CollateDemonstrations(CollatePrompts(tokenizer, 4), 5))
  batch = collate([Preference("a", "bc", "d"), Preference("ef", "g", "hij")])
  assert batch.tokens.shape == batch.mask.shape == (2, 2, 5)
  assert batch.mask.sum(-1).tolist() == [[3, 2], [2, 4]]
  assert batch.tokens[0, 0, :3].tolist() == [*tokenizer("bc").input_ids[1:], 2]
  assert batch.prompts.mask.sum(-1).tolist() == [2, 3]
  assert np.all(batch.tokens[~batch.mask] == 0)
  with pytest.raises(
    ValueError, match="'toolong' has 8 tokens; max_completion_tokens allows 5"
  ):
    collate([Preference("a", "b", "toolong")])
