"""Forward passes over a rollout, and splitting one into parts."""

import jax

from pgax.models.decoder import Decoder
from pgax.models.heads import Critic
from pgax.models.scoring import completion_logits, completion_outputs
from pgax.ops import logprobs
from pgax.types import Array, Batch, PyTree, Rollout


def token_logp(
  model: Decoder, params: PyTree, batch: Rollout | Batch, temperature: float
) -> tuple[Array, Array]:
  """Log-probability and entropy at every completion token, by one forward pass.

  Args:
    model: the decoder.
    params: its parameters.
    batch: anything with prompts `[N, P]` and completions `[N, G, T]`.
    temperature: of the policy.

  Returns:
    Two arrays `[N, G, T]`, nats.
  """
  logits = completion_logits(
    model, params, batch.prompt_tokens, batch.prompt_mask, batch.tokens, batch.mask
  )
  log_probs = logprobs.log_softmax(logits, temperature)
  return logprobs.token_logp(log_probs, batch.tokens), logprobs.entropy(log_probs)


def token_outputs(critic: Critic, params: PyTree, batch: Rollout | Batch) -> Array:
  """Outputs of the critic's head before every completion token, by one forward pass.

  Args:
    critic: the critic.
    params: its parameters.
    batch: as for `token_logp`.

  Returns:
    `[N, G, T]` float32.
  """
  return completion_outputs(
    critic, params, batch.prompt_tokens, batch.prompt_mask, batch.tokens, batch.mask
  )


def split(tree: PyTree, parts: int) -> PyTree:
  """Axis 0 of every array in `parts` parts: `[N, ...]` to `[parts, N / parts, ...]`.

  Part `i` is every `parts`-th row from `i` on. With rows sharded in blocks, each part then
  has rows on every device, and nothing moves.
  """

  def strided(x: Array) -> Array:
    return x.reshape(x.shape[0] // parts, parts, *x.shape[1:]).swapaxes(0, 1)

  return jax.tree.map(strided, tree)


def join(tree: PyTree) -> PyTree:
  """The inverse of `split`."""
  return jax.tree.map(lambda x: x.swapaxes(0, 1).reshape(-1, *x.shape[2:]), tree)
