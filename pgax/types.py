"""The pytrees that cross folder borders, and the protocols of the functions.

Every array has its leading axes in one order: `N` prompts, `G` completions of each
prompt, `T` completion tokens (`P` prompt tokens). The group is an axis, never a layout
convention, so a reduction over a group is a reduction over the last axis of `[N, G]`.
"""

import dataclasses
import types
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import flax.struct
import jax

Array = jax.Array
PyTree = Any
# What a reward function is told of a problem of which nothing else is known.
NO_METADATA: Mapping[str, Any] = types.MappingProxyType({})


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
    finished: `[N, G]` bool, true where a completion ended by EOS or a stop sequence, and
      not by the length limit.
  """

  prompt_tokens: Array
  prompt_mask: Array
  tokens: Array
  mask: Array
  logp: Array
  sample_logp: Array
  finished: Array


@flax.struct.dataclass
class Feedback:
  """What was said of the completions of a rollout.

  Attributes:
    rewards: `[N, G]` float32; may hold anything where not valid.
    valid: `[N, G]` bool, false on completions that could not be scored.
    greedy_rewards: `[N]` float32, reward of each prompt's greedy completion, nan where it
      could not be scored; None where the algorithm asks for none.
    step_rewards: `[N, G, T]` float32, the reward of a step at the token that ends it; None
      where steps are not rewarded.
    step_ends: `[N, G, T]` bool, true on tokens that end a step; None as above.
  """

  rewards: Array
  valid: Array
  greedy_rewards: Array | None = None
  step_rewards: Array | None = None
  step_ends: Array | None = None


@flax.struct.dataclass
class Scored:
  """What an advantage function sees of a scored rollout.

  Attributes:
    rewards: `[N, G]` float32, shaped, and KL penalty already subtracted where the
      algorithm puts it in the reward; 0 where not valid.
    valid: `[N, G]` bool, false on completions that could not be scored.
    mask: `[N, G, T]` bool, true on sampled tokens of valid completions.
    penalty: `[N, G, T]` float32, what of the KL penalty was subtracted for each token, its
      coefficient included; 0 where there is none.
    baseline: float32 scalar, the algorithm's baseline from the steps before; None if it
      keeps none.
    values: `[N, G, T]` float32, the critic's value before each token; None without one.
    greedy_rewards: `[N]` float32, as in `Feedback` but 0 where it could not be scored:
      nothing of that prompt is valid then.
    step_rewards: `[N, G, T]` float32, as in `Feedback`.
    step_ends: `[N, G, T]` bool, as in `Feedback`, true on real tokens only.
  """

  rewards: Array
  valid: Array
  mask: Array
  penalty: Array
  baseline: Array | None = None
  values: Array | None = None
  greedy_rewards: Array | None = None
  step_rewards: Array | None = None
  step_ends: Array | None = None


@flax.struct.dataclass
class Batch:
  """A training batch: a rollout with everything the loss needs, aligned to its tokens.

  Attributes:
    prompt_tokens: `[N, P]` int32.
    prompt_mask: `[N, P]` bool.
    tokens: `[N, G, T]` int32.
    mask: `[N, G, T]` bool, true on tokens that take part in the update.
    rewards: `[N, G]` float32, as in `Scored`.
    valid: `[N, G]` bool, as in `Scored`.
    advantages: `[N, G, T]` float32.
    weights: `[N, G, T]` float32, the weight of every token's loss in the global batch.
    old_logp: `[N, G, T]` float32, log-probability (nats) under the policy that the
      update starts from.
    ref_logp: `[N, G, T]` float32, log-probability (nats) under the reference policy.
    correction: `[N, G, T]` float32, weight that makes up for a sampler whose probabilities
      are not the trainer's; 1 where the algorithm does not correct.
    imitation: `[N, G, T]` float32, weight of every token's negative log-likelihood; None
      where the algorithm imitates nothing.
    old_values: `[N, G, T]` float32, the critic's values before the update; None without
      one.
    targets: `[N, G, T]` float32, what the critic is to learn; None without one.
  """

  prompt_tokens: Array
  prompt_mask: Array
  tokens: Array
  mask: Array
  rewards: Array
  valid: Array
  advantages: Array
  weights: Array
  old_logp: Array
  ref_logp: Array
  correction: Array
  imitation: Array | None = None
  old_values: Array | None = None
  targets: Array | None = None


@flax.struct.dataclass
class DemonstrationRows:
  """Prompts with the solutions to imitate, in rows of tokens.

  Attributes:
    tokens: `[R, L]` int32, prompts each followed by their solution and EOS, one after
      another, then padding.
    learned: `[R, L]` bool, true on tokens of solutions, whose likelihood is raised.
    positions: `[R, L]` int32, position of each token in its own text.
    segments: `[R, L]` int32, number of each token's text in its row from 1; 0 on padding.
  """

  tokens: Array
  learned: Array
  positions: Array
  segments: Array


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
    metadata: what else is known of the problem, such as its tests or its difficulty; the
      reward function sees it, the policy does not.
  """

  prompt: str
  ground_truth: str
  solution: str = ""
  metadata: Mapping[str, Any] = dataclasses.field(default_factory=dict, hash=False)


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


class ShapingFn(Protocol):
  """Rewards `[N, G]`, which of them are valid, and their rollout, to shaped rewards."""

  def __call__(self, rewards: Array, valid: Array, rollout: Rollout) -> Array: ...


class KeepFn(Protocol):
  """Which completions take part in the update, `[N, G]` bool.

  It is given rewards `[N, G]` before any shaping (0 where not valid), which of them are
  valid, and their rollout. What is not valid takes no part, whatever it says.
  """

  def __call__(self, rewards: Array, valid: Array, rollout: Rollout) -> Array: ...


class CorrectionFn(Protocol):
  """Log-probabilities by trainer and sampler, and the mask, to a weight for every token."""

  def __call__(self, old_logp: Array, rollout_logp: Array, mask: Array) -> Array: ...


class ValueLossFn(Protocol):
  """How outputs of the critic's head become values, and what the head is trained by."""

  def values(self, outputs: Array) -> Array:
    """Outputs of the head to values, in units of reward."""

  def __call__(self, outputs: Array, batch: Batch) -> Array:
    """Outputs `[N, G, T]` and the batch to a per-token loss."""


class StepReward(NamedTuple):
  """The reward of one step of a completion.

  Attributes:
    end: number of characters of the completion up to the end of the step.
    reward: of the step.
  """

  end: int
  reward: float


class StepRewardFn(Protocol):
  """What a `RewardFn` is given, to the rewards of the completion's steps."""

  def __call__(
    self, prompt: str, completion: str, ground_truth: str, metadata: Mapping[str, Any]
  ) -> Sequence[StepReward]: ...


class AnswerFn(Protocol):
  """The answer in a completion's text, or None if there is none."""

  def __call__(self, text: str) -> str | None: ...


class RewardFn(Protocol):
  """Prompt, completion, ground truth and metadata to named scores, `reward` among them.

  The scores beside `reward` are its parts, logged apart as `reward/NAME`.
  A completion that cannot be scored has a `reward` of nan: it then takes no part in the
  statistics of its group, which is not the same as a reward of 0.
  """

  def __call__(
    self, prompt: str, completion: str, ground_truth: str, metadata: Mapping[str, Any]
  ) -> Mapping[str, float]: ...
