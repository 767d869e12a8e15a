"""A byte-level Hugging Face tokenizer of 259 ids, and functions for any tokenizer."""

import re
from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

_BYTE_TOKEN = re.compile("<0x[0-9A-F]{2}>")  # SentencePiece's fallback for bytes
PAD, BOS, EOS = "<pad>", "<bos>", "<eos>"


def byte_tokenizer() -> PreTrainedTokenizerFast:
  """Builds a tokenizer whose tokens are the 256 bytes and three special tokens.

  It needs neither files nor training.

  Returns:
    A `PreTrainedTokenizerFast` that starts a text with `<bos>`. Ids: 0 `<pad>`,
    1 `<bos>`, 2 `<eos>`, then the bytes.
  """
  alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
  vocab = {token: index for index, token in enumerate([PAD, BOS, EOS, *alphabet])}
  tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
  tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(
    add_prefix_space=False, use_regex=False
  )
  tokenizer.decoder = decoders.ByteLevel()
  tokenizer.post_processor = processors.TemplateProcessing(
    single=f"{BOS} $A", special_tokens=[(BOS, vocab[BOS])]
  )
  return PreTrainedTokenizerFast(
    tokenizer_object=tokenizer, pad_token=PAD, bos_token=BOS, eos_token=EOS
  )


def load_tokenizer(path: Path) -> PreTrainedTokenizerFast:
  """Loads a tokenizer that was saved with a run."""
  return PreTrainedTokenizerFast.from_pretrained(path)


def encode(tokenizer: PreTrainedTokenizerFast, text: str) -> list[int]:
  """Encodes a prompt; the text of a special token is encoded as plain text.

  Args:
    tokenizer: a fast tokenizer.
    text: any text.

  Returns:
    The ids, with the special tokens that the tokenizer adds to a text.
  """
  return tokenizer(text, split_special_tokens=True).input_ids


def encode_completion(tokenizer: PreTrainedTokenizerFast, text: str) -> list[int]:
  """Encodes a completion, without special tokens before it and with EOS after it."""
  plain = tokenizer(text, add_special_tokens=False, split_special_tokens=True)
  return [*plain.input_ids, tokenizer.eos_token_id]


def decode(tokenizer: PreTrainedTokenizerFast, ids: Sequence[int]) -> str:
  """Decodes ids and omits special tokens."""
  return tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)


def token_bytes(tokenizer: PreTrainedTokenizerFast, vocab_size: int) -> list[bytes]:
  """Returns the UTF-8 bytes that each token adds to a text.

  A token may end within a character.

  Args:
    tokenizer: a fast tokenizer, either byte-level or SentencePiece as converted by
      transformers.
    vocab_size: number of ids of the model; the tokenizer may have fewer.

  Returns:
    `vocab_size` byte strings; empty for special tokens and for ids without a token.
  """
  added = tokenizer.added_tokens_decoder
  names = tokenizer.convert_ids_to_tokens(range(min(vocab_size, len(tokenizer))))
  byte_level = '"ByteLevel"' in str(tokenizer.backend_tokenizer.decoder.__getstate__())
  byte_of = {character: byte for byte, character in _byte_characters().items()}

  def to_bytes(token: int, name: str | None) -> bytes:
    if name is None:
      return b""
    if token in added:
      return b"" if added[token].special else added[token].content.encode()
    if byte_level:
      return bytes(byte_of[character] for character in name)
    if _BYTE_TOKEN.fullmatch(name):
      return bytes([int(name[3:5], 16)])
    return name.replace("\u2581", " ").encode()

  spellings = [to_bytes(token, name) for token, name in enumerate(names)]
  return spellings + [b""] * (vocab_size - len(spellings))


def _byte_characters() -> dict[int, str]:
  """Returns the character of each byte in byte-level vocabularies, as in GPT-2."""
  visible = {*range(33, 127), *range(161, 173), *range(174, 256)}
  others = iter(range(256, 512))
  return {byte: chr(byte if byte in visible else next(others)) for byte in range(256)}


def tokens_text(tokenizer: PreTrainedTokenizerFast, ids: Sequence[int]) -> str:
  """Returns the text of tokens, with the names of special ones."""
  return tokenizer.decode([int(x) for x in ids], clean_up_tokenization_spaces=False)


def token_text(tokenizer: PreTrainedTokenizerFast, token: int) -> str:
  """Returns the text of one token; for a special token, its name."""
  return tokens_text(tokenizer, [token])
