"""Floating-point operations of a decoder, by its configuration."""

from pgax.models.config import DecoderConfig


def token_flops(config: DecoderConfig, context: float = 0.0) -> float:
  """Counts the floating-point operations of a forward pass, per token.

  Two for every parameter of a matrix that the token is multiplied with (of a mixture, the
  experts that compute it), the unembedding included, and four for every feature of a query
  and every token that it attends to. Norms, RoPE and softmax are left out, as is usual. A
  backward pass takes twice as many. Source: arXiv 2204.02311, appendix B.

  Args:
    config: configuration of the decoder.
    context: mean number of tokens that a token attends to.

  Returns:
    Number of operations.
  """
  width = config.embed_dim
  queries = config.num_heads * config.head_dim
  keys_and_values = 2 * config.num_kv_heads * config.head_dim
  attention = width * (2 * queries + keys_and_values)
  feed_forward = 3 * width * config.mlp_dim
  if config.num_experts:
    router = width * config.num_experts
    feed_forward = feed_forward * config.experts_per_token + router
  layers = config.num_layers * (attention + feed_forward)
  scores = 4 * config.num_layers * queries * context
  return 2.0 * (layers + width * config.vocab_size) + scores
