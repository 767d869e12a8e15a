"""A byte-level Hugging Face tokenizer, built offline: any text, no training, 259 ids."""

from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

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


def token_text(tokenizer: PreTrainedTokenizerFast, token: int) -> str:
  """How one token reads, special tokens by their name."""
  return tokenizer.decode([int(token)], clean_up_tokenization_spaces=False)
