"""The byte tokenizer: any text there and back, and special tokens only where meant."""

from hypothesis import given
from hypothesis import strategies as st

from pgax.data import byte_tokenizer, load_tokenizer
from pgax.data.tokenizer import decode, encode, encode_completion, token_text

TOKENIZER = byte_tokenizer()


@given(st.text())
def test_any_text_there_and_back(text):
  ids = encode(TOKENIZER, text)
  assert ids[0] == TOKENIZER.bos_token_id and len(ids) == 1 + len(text.encode())
  assert decode(TOKENIZER, ids) == text
  completion = encode_completion(TOKENIZER, text)
  assert completion == [*ids[1:], TOKENIZER.eos_token_id]


def test_text_that_spells_a_special_token_is_text():
  ids = encode(TOKENIZER, "a<eos>b")
  assert TOKENIZER.eos_token_id not in ids and decode(TOKENIZER, ids) == "a<eos>b"


def test_saved_with_a_run(tmp_path):
  TOKENIZER.save_pretrained(tmp_path)
  again = load_tokenizer(tmp_path)
  for text in ("12+34=", " two  spaces , and\nlines", "é😀"):
    assert encode(again, text) == encode(TOKENIZER, text)
    assert decode(again, encode(again, text)) == text
  assert len(again) == len(TOKENIZER) == 259


def test_token_text():
  assert token_text(TOKENIZER, TOKENIZER.eos_token_id) == "<eos>"
  assert [token_text(TOKENIZER, i) for i in encode(TOKENIZER, "1 =")[1:]] == [
    "1",
    " ",
    "=",
  ]
