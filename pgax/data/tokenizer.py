"""A byte-level Hugging Face tokenizer, built offline: any text, no training, 259 ids."""

import re
from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

_BYTE_TOKEN = re.compile("<0x[0-9A-F]{2}>")  # SentencePiece's, of a byte without a piece
PAD, BOS, EOS = "<pad>", "<bos>", "<eos>"


def byte_tokenizer() -> PreTrainedTokenizerFast:
  """A tokenizer whose tokens are the 256 bytes of UTF-8 and three special tokens.

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
  """Reads a tokenizer that was saved with a run."""
  return PreTrainedTokenizerFast.from_pretrained(path)


def encode(tokenizer: PreTrainedTokenizerFast, text: str) -> list[int]:
  """Ids of a prompt; text that spells a special token is just text.

  Args:
    tokenizer: a fast tokenizer.
    text: any text.

  Returns:
    The ids, with whatever the tokenizer puts in front of a text.
  """
  return tokenizer(text, split_special_tokens=True).input_ids


def encode_completion(tokenizer: PreTrainedTokenizerFast, text: str) -> list[int]:
  """Ids of a completion: nothing in front, EOS at the end."""
  plain = tokenizer(text, add_special_tokens=False, split_special_tokens=True)
  return [*plain.input_ids, tokenizer.eos_token_id]


def decode(tokenizer: PreTrainedTokenizerFast, ids: Sequence[int]) -> str:
  """Text of ids, special tokens left out."""
  return tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)


def token_bytes(tokenizer: PreTrainedTokenizerFast, vocab_size: int) -> list[bytes]:
  """What every token adds to a text, as UTF-8; a token may end within a character.

  Args:
    tokenizer: a fast tokenizer: byte-level, or SentencePiece as transformers converts it.
    vocab_size: number of ids that the model has; the tokenizer may know fewer.

  Returns:
    `vocab_size` byte strings; empty for special tokens, and for ids without a token.
  """
  added = tokenizer.added_tokens_decoder
  known = tokenizer.convert_ids_to_tokens(range(min(vocab_size, len(tokenizer))))
  byte_level = '"ByteLevel"' in str(tokenizer.backend_tokenizer.decoder.__getstate__())
  of_byte = {character: byte for byte, character in _byte_characters().items()}

  def spelled(token: int, name: str | None) -> bytes:
    if name is None:
      return b""
    if token in added:
      return b"" if added[token].special else added[token].content.encode()
    if byte_level:
      return bytes(of_byte[character] for character in name)
    if _BYTE_TOKEN.fullmatch(name):
      return bytes([int(name[3:5], 16)])
    return name.replace("\u2581", " ").encode()

  found = [spelled(token, name) for token, name in enumerate(known)]
  return found + [b""] * (vocab_size - len(found))


def _byte_characters() -> dict[int, str]:
  """The visible character that stands for each byte in byte-level vocabularies (GPT-2)."""
  visible = {*range(33, 127), *range(161, 173), *range(174, 256)}
  others = iter(range(256, 512))
  return {byte: chr(byte if byte in visible else next(others)) for byte in range(256)}


def token_text(tokenizer: PreTrainedTokenizerFast, token: int) -> str:
  """How one token reads, special tokens by their name."""
  return tokenizer.decode([int(token)], clean_up_tokenization_spaces=False)
