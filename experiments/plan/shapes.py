"""Shapes of well-known models, for plans without their files."""

from typing import Any

from pgax.models import DecoderConfig

_QWEN = {"rope_theta": 1e6, "qkv_bias": True}
_LLAMA = {"rope_theta": 5e5, "tie_embeddings": False}


def _shape(
  vocab: int, layers: int, embed: int, heads: tuple[int, int, int], mlp: int, **other: Any
) -> DecoderConfig:
  """Makes a shape; `heads` are numbers of query and key heads, and the width of a head."""
  other |= {"scale_embeddings": False, "dtype": "auto", "remat": True}
  return DecoderConfig(vocab, layers, embed, *heads, mlp, **other)


# From the models' own files.
SHAPES = {
  "smollm2-135m": _shape(49152, 30, 576, (9, 3, 64), 1536, rope_theta=1e5),
  "qwen2.5-0.5b": _shape(151936, 24, 896, (14, 2, 64), 4864, **_QWEN),
  "qwen2.5-1.5b": _shape(151936, 28, 1536, (12, 2, 128), 8960, **_QWEN),
  "qwen2.5-7b": _shape(
    152064, 28, 3584, (28, 4, 128), 18944, tie_embeddings=False, **_QWEN
  ),
  "llama3-8b": _shape(128256, 32, 4096, (32, 8, 128), 14336, **_LLAMA),
  "llama3-70b": _shape(128256, 80, 8192, (64, 8, 128), 28672, **_LLAMA),
}
