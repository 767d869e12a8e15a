"""The byte tokenizer: round trips of any text, and special tokens."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from pgax.data import byte_tokenizer, load_tokenizer
from pgax.data.tokenizer import decode, encode, encode_completion, token_bytes, token_text

TOKENIZER = byte_tokenizer()


@given(st.text())
def test_any_text_survives_a_round_trip(text):
  ids = encode(TOKENIZER, text)
  assert ids[0] == TOKENIZER.bos_token_id and len(ids) == 1 + len(text.encode())
  assert decode(TOKENIZER, ids) == text
  completion = encode_completion(TOKENIZER, text)
  assert completion == [*ids[1:], TOKENIZER.eos_token_id]


def test_the_text_of_a_special_token_is_plain_text():
  ids = encode(TOKENIZER, "a<eos>b")
  assert TOKENIZER.eos_token_id not in ids and decode(TOKENIZER, ids) == "a<eos>b"


def test_a_saved_tokenizer_encodes_equally(tmp_path):
  TOKENIZER.save_pretrained(tmp_path)
  loaded = load_tokenizer(tmp_path)
  for text in ("12+34=", " two  spaces , and\nlines", "é😀"):
    assert encode(loaded, text) == encode(TOKENIZER, text)
    assert decode(loaded, encode(loaded, text)) == text
  assert len(loaded) == len(TOKENIZER) == 259


def test_token_text():
  assert token_text(TOKENIZER, TOKENIZER.eos_token_id) == "<eos>"
  assert [token_text(TOKENIZER, i) for i in encode(TOKENIZER, "1 =")[1:]] == [
    "1",
    " ",
    "=",
  ]


def _sentencepiece():
  """Returns a tokenizer like those that transformers converts from SentencePiece."""
  pieces = [
    "<unk>",
    "</s>",
    *(f"<0x{i:02X}>" for i in range(256)),
    "\u2581",
    "a",
    "b",
    "\u2581a",
  ]
  merges = [("\u2581", "a")]
  vocab = {piece: index for index, piece in enumerate(pieces)}
  tokenizer = Tokenizer(models.BPE(vocab, merges, byte_fallback=True, unk_token="<unk>"))
  tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
  tokenizer.decoder = decoders.Sequence(
    [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
  )
  return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>")


def _merged():
  """Returns a byte-level tokenizer with merges and an added token."""
  tokenizer = Tokenizer(models.BPE())
  tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
  tokenizer.decoder = decoders.ByteLevel()
  trainer = trainers.BpeTrainer(
    vocab_size=300,
    initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    show_progress=False,
  )
  tokenizer.train_from_iterator(["an answer </answer> é ñ 12 "] * 3, trainer)
  tokenizer.add_tokens(["<think>"])
  return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<eos>")


@pytest.mark.parametrize("make", [byte_tokenizer, _sentencepiece, _merged])
def test_token_bytes_spell_the_text(make):
  tokenizer = make()
  spellings = token_bytes(tokenizer, len(tokenizer) + 2)
  for text in ("an answer</answer> a", "é ñ <think> 12\n\t", "\x00\x7f\xad 😀"):
    ids = tokenizer(text, add_special_tokens=False).input_ids
    assert b"".join(spellings[i] for i in ids) == text.encode()
  assert spellings[tokenizer.eos_token_id] == b"" and spellings[-2:] == [b"", b""]
