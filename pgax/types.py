"""The pytrees that cross folder borders, and the protocols of the functions.

Every array has its leading axes in one order: `N` prompts, `G` completions of each
prompt, `T` completion tokens (`P` prompt tokens). The group is an axis, never a layout
convention, so a reduction over a group is a reduction over the last axis of `[N, G]`.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import flax.struct
import jax

Array = jax.Array
PyTree = Any


@flax.struct.dataclass
class Rollout:
  """Completions sampled for a batch of prompts.

  Attributes:
    prompt_tokens: `[N, P]` int32, right-padded.
    prompt_mask: `[N, P]` bool, true on real prompt tokens.
    tokens: `[N, G, T]` int32, 0 on padding.
    mask: `[N, G, T]` bool, true on tokens that were sampled, EOS included.
    logp: `[N, G, T]` float32, log-probability (nats) under the policy, that is under
      `softmax(logits / temperature)`; 0 on padding.
    sample_logp: `[N, G, T]` float32, log-probability (nats) under the distribution that
      was really sampled from; 0 on padding, and everywhere when decoding greedily.
    finished: `[N, G]` bool, true where a completion ended by EOS and not by the length
      limit.
  """

  prompt_tokens: Array
  prompt_mask: Array
  tokens: Array
  mask: Array
  logp: Array
  sample_logp: Array
  finished: Array


@flax.struct.dataclass
class Scored:
  """What an advantage function sees of a scored rollout.

  Attributes:
    rewards: `[N, G]` float32, KL penalty already subtracted where the algorithm puts it
      in the reward.
    valid: `[N, G]` bool, false on completions that could not be scored.
    mask: `[N, G, T]` bool, true on tokens that take part in the update.
  """

  rewards: Array
  valid: Array
  mask: Array


@flax.struct.dataclass
class Batch:
  """A training batch: a rollout with everything the loss needs, aligned to its tokens.

  Attributes:
    prompt_tokens: `[N, P]` int32.
    prompt_mask: `[N, P]` bool.
    tokens: `[N, G, T]` int32.
    mask: `[N, G, T]` bool, true on tokens that take part in the update.
    advantages: `[N, G, T]` float32.
    weights: `[N, G, T]` float32, the weight of every token's loss in the global batch.
    old_logp: `[N, G, T]` float32, log-probability (nats) under the policy that the
      update starts from.
    ref_logp: `[N, G, T]` float32, log-probability (nats) under the reference policy.
  """

  prompt_tokens: Array
  prompt_mask: Array
  tokens: Array
  mask: Array
  advantages: Array
  weights: Array
  old_logp: Array
  ref_logp: Array


class SurrogateLoss(NamedTuple):
  """A per-token loss, never reduced, and where the clip took the gradient away."""

  loss: Array
  clipped: Array


@dataclasses.dataclass(frozen=True)
class Example:
  """One problem, as text.

  Attributes:
    prompt: what the policy is given.
    ground_truth: what the reward function compares with.
    solution: a worked solution, the target of supervised training; may be empty.
  """

  prompt: str
  ground_truth: str
  solution: str = ""


class AdvantageFn(Protocol):
  """Scored rollout to advantages, `[N, G]` per completion or `[N, G, T]` per token."""

  def __call__(self, scored: Scored) -> Array: ...


class SurrogateFn(Protocol):
  """Live log-probabilities `[N, G, T]` and the batch to a per-token loss."""

  def __call__(self, logp: Array, batch: Batch) -> SurrogateLoss: ...


class AggregationFn(Protocol):
  """Mask `[..., T]` of the global batch to the weight of every token, same shape."""

  def __call__(self, mask: Array) -> Array: ...


class DivergenceFn(Protocol):
  """Log-probabilities of policy and reference to a per-token estimate of their KL."""

  def __call__(self, logp: Array, ref_logp: Array) -> Array: ...


class RewardFn(Protocol):
  """Prompt, completion text and ground truth to named scores, `reward` among them.

  A completion that cannot be scored has a `reward` of nan: it then takes no part in the
  statistics of its group, which is not the same as a reward of 0.
  """

  def __call__(
    self, prompt: str, completion: str, ground_truth: str
  ) -> Mapping[str, float]: ...
