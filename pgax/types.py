"""Pytrees that cross packages, and the protocols of the functions.

Leading axes are `N` prompts, `G` completions per prompt and `T` completion tokens (`P`
prompt tokens), in this order. A reduction over a group reduces the last axis of `[N, G]`.

Three masks of a token, which are equal only in single-turn runs:

- `token_mask`: the token exists, and later tokens attend to it.
- `action_mask`: the policy sampled it, so it has a log-probability. The tokens of an
  environment's reply exist but are no actions.
- `loss_mask`: it takes part in this update. Every such token is an action.
"""

import dataclasses
import types
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import flax.struct
import jax

Array = jax.Array
PyTree = Any
Metadata = Mapping[str, Any]  # further facts about a problem; see `Example`
NO_METADATA: Metadata = types.MappingProxyType({})


@flax.struct.dataclass
class ExpertChoices:
  """The experts that a router chose for the tokens of a rollout.

  Attributes:
    prompt: `[N, P, layers, k]`, experts of each prompt token, uint8 or int32.
    completion: `[N, G, T, layers, k]`, experts of each completion token.
  """

  prompt: Array
  completion: Array


@flax.struct.dataclass
class Rollout:
  """Completions sampled for a batch of prompts.

  Attributes:
    prompt_tokens: `[N, P]` int32, right-padded.
    prompt_mask: `[N, P]` bool, true on prompt tokens.
    tokens: `[N, G, T]` int32, 0 on padding.
    token_mask: `[N, G, T]` bool, true on tokens that exist, EOS included.
    action_mask: `[N, G, T]` bool, true on tokens that the policy sampled, EOS included; a
      subset of `token_mask`.
    logp: `[N, G, T]` float32, log-probabilities (nats) under the policy, which is
      `softmax(logits / temperature)`; ignored outside of `action_mask`.
    sample_logp: `[N, G, T]` float32, log-probabilities (nats) under the distribution that
      the tokens were sampled from, 0 everywhere in greedy decoding; ignored outside of
      `action_mask`.
    finished: `[N, G]` bool, true on completions that ended by EOS or a stop string, false
      on those cut at the length limit.
    experts: experts that computed the tokens; None if they were not recorded.
  """

  prompt_tokens: Array
  prompt_mask: Array
  tokens: Array
  token_mask: Array
  action_mask: Array
  logp: Array
  sample_logp: Array
  finished: Array
  experts: ExpertChoices | None = None


@flax.struct.dataclass
class Feedback:
  """The rewards of the completions of a rollout.

  Attributes:
    rewards: `[N, G]` float32; ignored where not valid.
    valid: `[N, G]` bool, false on completions that could not be scored.
    greedy_rewards: `[N]` float32, reward of each prompt's greedy completion, nan where it
      could not be scored; None for algorithms without a greedy baseline.
    step_rewards: `[N, G, T]` float32, the reward of a step at the token that ends it; None
      where steps have no rewards.
    step_ends: `[N, G, T]` bool, true on tokens that end a step; None with `step_rewards`.
    components: `[N, G, K]` float32, scores that the algorithm reads one by one (see
      `Algorithm.components`), nan where a completion has none; None for other algorithms.
  """

  rewards: Array
  valid: Array
  greedy_rewards: Array | None = None
  step_rewards: Array | None = None
  step_ends: Array | None = None
  components: Array | None = None


@flax.struct.dataclass
class AdvantageInputs:
  """The inputs of an advantage function, made by `algorithms.prepare`.

  Attributes:
    rewards: `[N, G]` float32, shaped, minus the KL penalty where the algorithm puts it in
      the reward; 0 where not valid.
    valid: `[N, G]` bool, false on completions that could not be scored.
    action_mask: `[N, G, T]` bool, true on the actions of valid completions.
    penalty: `[N, G, T]` float32, the KL penalty in the reward of each action, its
      coefficient included.
    baseline: float32 scalar, the moving average kept by the algorithm; None without one.
    values: `[N, G, T]` float32, the critic's value before each action; None without one.
    greedy_rewards: `[N]` float32, as in `Feedback`, and 0 where not scored (no completion
      of that prompt is valid then).
    step_rewards: `[N, G, T]` float32, as in `Feedback`.
    step_ends: `[N, G, T]` bool, as in `Feedback`, true on actions only.
    components: `[N, G, K]` float32, as in `Feedback`, and 0 where not valid.
    end_values: `[N, G]` float32, the critic's value after truncated completions, 0 after
      finished ones; None for algorithms without such a bootstrap.
  """

  rewards: Array
  valid: Array
  action_mask: Array
  penalty: Array
  baseline: Array | None = None
  values: Array | None = None
  greedy_rewards: Array | None = None
  step_rewards: Array | None = None
  step_ends: Array | None = None
  components: Array | None = None
  end_values: Array | None = None


@flax.struct.dataclass
class Batch:
  """A training batch: a rollout and all data that the loss needs, aligned to its tokens.

  Attributes:
    prompt_tokens: `[N, P]` int32.
    prompt_mask: `[N, P]` bool.
    tokens: `[N, G, T]` int32.
    token_mask: `[N, G, T]` bool, true on tokens that exist; see `Rollout`.
    loss_mask: `[N, G, T]` bool, true on actions that take part in the update. The arrays
      below are 0 elsewhere.
    rewards: `[N, G]` float32; see `AdvantageInputs`.
    valid: `[N, G]` bool; see `AdvantageInputs`.
    advantages: `[N, G, T]` float32.
    weights: `[N, G, T]` float32, the weight of every token's loss in the global batch.
    old_logp: `[N, G, T]` float32, log-probabilities (nats) under the policy that the
      update starts from; None where its ratio is 1 by definition.
    frozen_logp: `[N, G, T]` float32, log-probabilities (nats) under frozen policies, by
      their names, such as `reference`.
    sampler_weights: `[N, G, T]` float32, weights that correct for a sampler whose
      probabilities differ; 1 without a correction, and 0 outside of `surrogate_mask`.
    surrogate_mask: `[N, G, T]` bool, tokens whose surrogate counts, a subset of
      `loss_mask`; None for all of it.
    nll_weights: `[N, G, T]` float32, the weight of every token's negative log-likelihood;
      None for algorithms without that term.
    old_values: `[N, G, T]` float32, the critic's values before the update; None without a
      critic.
    targets: `[N, G, T]` float32, the critic's targets; None without a critic.
    rollout_logp: `[N, G, T]` float32, `Rollout.logp` on the loss mask, for metrics and for
      surrogates anchored at the sampler's policy.
    experts: experts that computed the tokens in the sampler; see `Rollout`.
  """

  prompt_tokens: Array
  prompt_mask: Array
  tokens: Array
  token_mask: Array
  loss_mask: Array
  rewards: Array
  valid: Array
  advantages: Array
  weights: Array
  old_logp: Array | None
  frozen_logp: Mapping[str, Array]
  sampler_weights: Array
  nll_weights: Array | None = None
  old_values: Array | None = None
  targets: Array | None = None
  rollout_logp: Array | None = None
  experts: ExpertChoices | None = None
  surrogate_mask: Array | None = None

  @property
  def ref_logp(self) -> Array | None:
    """Log-probabilities under the reference policy; None without one."""
    return self.frozen_logp.get("reference")


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


def step_keys(key: Array, step: Array | int) -> tuple[Array, Array]:
  """Derives the keys of a step's rollout and of its update from the key of the run.

  No two steps share a key; `step` is counted over all stages.
  """
  rollout_key, update_key = jax.random.split(jax.random.fold_in(key, step))
  return rollout_key, update_key


class Step(NamedTuple):
  """The place of a step in its run.

  Attributes:
    number: number of steps of its stage before it.
    total: number of steps of all stages before it.
    key: random key of the run, never consumed; see `step_keys`.
  """

  number: int
  total: Array | int
  key: Array

  @property
  def rollout_key(self) -> Array:
    """Random key of what is sampled for the step."""
    return step_keys(self.key, self.total)[0]

  def later(self, count: int) -> "Step":
    """Returns the step that comes `count` steps later."""
    return Step(self.number + count, self.total + count, self.key)


class SurrogateLoss(NamedTuple):
  """A per-token loss, never reduced, and the tokens at which a clip acts, `[..., T]`."""

  loss: Array
  clipped: Array


@dataclasses.dataclass(frozen=True)
class Example:
  """One problem, as text.

  Attributes:
    prompt: the text that the policy continues.
    ground_truth: the text that the reward function compares with.
    solution: a worked solution, the target of supervised training; may be empty.
    metadata: further facts about the problem, such as its tests or its difficulty; visible
      to the reward function, not to the policy.
  """

  prompt: str
  ground_truth: str
  solution: str = ""
  metadata: Metadata = dataclasses.field(default_factory=dict, hash=False)


class AdvantageFn(Protocol):
  """Computes advantages, `[N, G]` per completion or `[N, G, T]` per token."""

  def __call__(self, inputs: AdvantageInputs) -> Array: ...


class SurrogateFn(Protocol):
  """Computes a per-token loss from log-probabilities `[N, G, T]` and the batch.

  Only `logp` is differentiated. With an attribute `compares_completions` that is False, a
  microbatch may hold a part of a group; without it groups stay together.
  """

  def __call__(self, logp: Array, batch: Batch) -> SurrogateLoss: ...


class AggregationFn(Protocol):
  """Computes the weight of every token from the global batch's loss mask `[..., T]`."""

  def __call__(self, mask: Array) -> Array: ...


class DivergenceFn(Protocol):
  """Estimates KL(policy || reference) per token from the log-probabilities of both."""

  def __call__(self, logp: Array, ref_logp: Array) -> Array: ...


class ShapingFn(Protocol):
  """Shapes rewards `[N, G]`, given which of them are valid and their rollout."""

  def __call__(self, rewards: Array, valid: Array, rollout: Rollout) -> Array: ...


class CompletionFilterFn(Protocol):
  """Selects the completions that take part in the update, `[N, G]` bool.

  Its `rewards` `[N, G]` are not shaped, and 0 where not valid. A completion that is not
  valid never takes part, even if the filter selects it.
  """

  def __call__(self, rewards: Array, valid: Array, rollout: Rollout) -> Array: ...


class TokenFilterFn(Protocol):
  """Selects the tokens whose surrogate counts, `[N, G, T]` bool.

  `entropies` are those of the policy before the update, in nats; `mask` is the loss mask.
  """

  def __call__(self, entropies: Array, mask: Array) -> Array: ...


class SamplerCorrectionFn(Protocol):
  """Computes a weight for every token that corrects for a differing sampler.

  `old_logp` is `[N, G, T]` log-probabilities of the trainer before the update, and
  `sample_logp` is `Rollout.sample_logp`, both in nats.
  """

  def __call__(self, old_logp: Array, sample_logp: Array, mask: Array) -> Array: ...


class ValueLossFn(Protocol):
  """Turns outputs of the critic's head into values, and into a loss."""

  def values(self, outputs: Array) -> Array:
    """Values, in units of reward, from outputs of the head."""

  def __call__(self, outputs: Array, batch: Batch) -> Array:
    """A per-token loss from outputs `[N, G, T]` and the batch."""


class StepReward(NamedTuple):
  """The reward of one step of a completion.

  Attributes:
    end: number of characters of the completion up to the end of the step.
    reward: the step's reward.
  """

  end: int
  reward: float


class StepRewardFn(Protocol):
  """Rewards the steps of a completion, given the arguments of a `RewardFn`."""

  def __call__(
    self, prompt: str, completion: str, ground_truth: str, metadata: Metadata
  ) -> Sequence[StepReward]: ...


class AnswerFn(Protocol):
  """Extracts the answer from a completion's text; None if there is none."""

  def __call__(self, text: str) -> str | None: ...


class RewardFn(Protocol):
  """Scores a completion: a mapping of named scores, `reward` among them.

  The other scores are logged as `reward/NAME`. A completion that cannot be scored has a
  `reward` of nan and is left out of the statistics of its group.
  """

  def __call__(
    self, prompt: str, completion: str, ground_truth: str, metadata: Metadata
  ) -> Mapping[str, float]: ...


class TokenReward(Protocol):
  """A reward as a function of arrays, for programs that never return to the host."""

  def answer_tokens(self, example: Example) -> Sequence[int]:
    """Returns what it needs of an example: tokens or other int32 numbers above 0."""

  def __call__(
    self, prompt_tokens: Array, tokens: Array, mask: Array, answer_tokens: Array
  ) -> Mapping[str, Array]:
    """Scores completions; it can be traced.

    Args:
      prompt_tokens: `[N, P]` int32 prompts.
      tokens: `[N, G, T]` int32 completions.
      mask: `[N, G, T]` bool, their tokens.
      answer_tokens: `[N, A]` int32 from the method, right-padded with 0.

    Returns:
      `[N, G]` float32 of each score by its name, `reward` among them, as a `RewardFn`.
    """
