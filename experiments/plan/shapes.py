"""Shapes of well-known models, for plans without their files."""

from pgax.models import DecoderConfig

_QWEN = {
  "scale_embeddings": False,
  "rope_theta": 1e6,
  "qkv_bias": True,
  "dtype": "auto",
  "remat": True,
}
_LLAMA = {
  "scale_embeddings": False,
  "rope_theta": 5e5,
  "tie_embeddings": False,
  "dtype": "auto",
  "remat": True,
}

# From the models' own files.
SHAPES = {
  "smollm2-135m": DecoderConfig(
    vocab_size=49152,
    num_layers=30,
    embed_dim=576,
    num_heads=9,
    num_kv_heads=3,
    head_dim=64,
    mlp_dim=1536,
    scale_embeddings=False,
    rope_theta=1e5,
    dtype="auto",
    remat=True,
  ),
  "qwen2.5-0.5b": DecoderConfig(
    vocab_size=151936,
    num_layers=24,
    embed_dim=896,
    num_heads=14,
    num_kv_heads=2,
    head_dim=64,
    mlp_dim=4864,
    **_QWEN,
  ),
  "qwen2.5-1.5b": DecoderConfig(
    vocab_size=151936,
    num_layers=28,
    embed_dim=1536,
    num_heads=12,
    num_kv_heads=2,
    head_dim=128,
    mlp_dim=8960,
    **_QWEN,
  ),
  "qwen2.5-7b": DecoderConfig(
    vocab_size=152064,
    num_layers=28,
    embed_dim=3584,
    num_heads=28,
    num_kv_heads=4,
    head_dim=128,
    mlp_dim=18944,
    tie_embeddings=False,
    **_QWEN,
  ),
  "llama3-8b": DecoderConfig(
    vocab_size=128256,
    num_layers=32,
    embed_dim=4096,
    num_heads=32,
    num_kv_heads=8,
    head_dim=128,
    mlp_dim=14336,
    **_LLAMA,
  ),
  "llama3-70b": DecoderConfig(
    vocab_size=128256,
    num_layers=80,
    embed_dim=8192,
    num_heads=64,
    num_kv_heads=8,
    head_dim=128,
    mlp_dim=28672,
    **_LLAMA,
  ),
}
