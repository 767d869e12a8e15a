"""Settings of the rollout: sampling, scoring and the learned reward model."""

import dataclasses
import math

from pgax.errors import check_at_least, check_at_most
from pgax.sampling import MAX_TEMPERATURE, MIN_TEMPERATURE

_MAX_WORKERS = 1024

_LEAST_MEMORY = 2**28  # a worker has imported libraries


@dataclasses.dataclass(frozen=True)
class SamplingConfig:
  """How completions are sampled.

  `top_k`, `top_p`, `min_p`, `logit_bias` and `banned_tokens` change the distribution that
  is sampled from, not the policy that is trained; an algorithm with a `sampler_correction`
  compensates for the difference.

  Attributes:
    prompts_per_step: number of prompts in a step, `N`.
    group_size: number of completions per prompt, `G`.
    max_prompt_tokens: maximum number of tokens in a prompt, `P`.
    max_completion_tokens: maximum number of tokens in a completion, EOS included, `T`.
    temperature: sampling temperature, and the temperature of the trained policy.
    top_k: number of most likely tokens to sample from; 0 for all.
    top_p: samples from the most likely tokens that reach this probability; 1 for all.
    min_p: samples from tokens at least this fraction as likely as the most likely one; 0
      for all.
    min_tokens: number of tokens to sample before EOS or a stop string may end the
      completion.
    stop_strings: strings that end a completion, the token that completes one included;
      they may span token boundaries.
    logit_bias: pairs of a token id and the number added to its logit.
    banned_tokens: ids of tokens that are never sampled.
    slots: number of completions decoded at a time, each replaced by the next one waiting
      when it ends; 0 decodes all at a time. It must be a multiple of the number of devices
      that prompts are sharded over. Fewer slots take less memory, and less time if lengths
      differ much.
    lag: number of steps between the policy that a step's completions are sampled from and
      the one that learns from them: step `t` learns from completions of the policy before
      step `max(0, t - lag)`. From 1 on, completions are scored while the devices update;
      the trained parameters of `lag + 1` steps are held. Correct for it by
      `policy_update.importance_cap`, or by the algorithm's `sampler_correction`.
  """

  prompts_per_step: int = 32
  group_size: int = 8
  max_prompt_tokens: int = 512
  max_completion_tokens: int = 512
  temperature: float = 1.0
  top_k: int = 0
  top_p: float = 1.0
  min_p: float = 0.0
  min_tokens: int = 0
  stop_strings: tuple[str, ...] = ()
  logit_bias: tuple[tuple[int, float], ...] = ()
  banned_tokens: tuple[int, ...] = ()
  slots: int = 0
  lag: int = 0

  def __post_init__(self):
    # Lists, from JSON for instance, would leave the settings without a hash.
    if isinstance(self.stop_strings, str):
      raise ValueError(
        f"stop_strings is {self.stop_strings!r}; it must be a tuple of strings"
      )
    for name in ("stop_strings", "banned_tokens"):
      object.__setattr__(self, name, tuple(vars(self)[name]))
    object.__setattr__(self, "logit_bias", tuple(map(tuple, self.logit_bias)))
    self._check_sizes()
    self._check_distribution()

  @property
  def completions_per_step(self) -> int:
    """Number of completions in a step, `N * G`."""
    return self.prompts_per_step * self.group_size

  def _check_sizes(self) -> None:
    check_at_least(self, 1, "prompts_per_step", "group_size", "max_prompt_tokens")
    check_at_least(self, 1, "max_completion_tokens")
    check_at_least(self, 0, "top_k", "min_tokens", "slots", "lag")
    if self.min_tokens >= self.max_completion_tokens:
      raise ValueError(
        f"min_tokens is {self.min_tokens} and max_completion_tokens is "
        f"{self.max_completion_tokens}; no completion could end before the limit"
      )
    if self.slots > self.completions_per_step:
      raise ValueError(
        f"slots is {self.slots}; a step has {self.completions_per_step} completions"
      )

  def _check_distribution(self) -> None:
    if not MIN_TEMPERATURE <= self.temperature <= MAX_TEMPERATURE:
      raise ValueError(
        f"temperature is {self.temperature}; the policy's must be from {MIN_TEMPERATURE} "
        f"to {MAX_TEMPERATURE} (greedy evaluation has its own setting)"
      )
    if not 0 < self.top_p <= 1:
      raise ValueError(f"top_p is {self.top_p}; it must be above 0 and at most 1")
    if not 0 <= self.min_p <= 1:
      raise ValueError(f"min_p is {self.min_p}; it must be in [0, 1]")
    if not all(len(pair) == 2 for pair in self.logit_bias):
      raise ValueError(
        f"logit_bias is {self.logit_bias}; it must be pairs of a token id and a number"
      )
    if not all(isinstance(x, str) and x for x in self.stop_strings):
      raise ValueError(
        f"stop_strings is {self.stop_strings}; each must be a string that is not empty"
      )


@dataclasses.dataclass(frozen=True)
class ScoringConfig:
  """Where and when completions are scored, and how many failures are tolerated.

  Attributes:
    workers: number of worker processes for the reward function (see
      `rewards.pool.Pool`). 0 calls it in the training process, where an exception ends the
      run and an endless loop never returns.
    timeout_seconds: seconds that a completion may take in a worker before it is killed.
    worker_memory: bytes of memory that a worker may use; 0 for no limit. A completion whose
      reward needs more is not scored.
    pipeline_chunks: number of chunks that a step's prompts are sampled in; it must divide
      `sampling.prompts_per_step`. The host scores one chunk while the devices sample the
      next, so a step waits for the last chunk's scores only; the devices have smaller
      batches in return. Samples do not depend on it, and everything is sampled from the
      policy that learns from it.
    max_unscorable: largest fraction of a step's completions that may fail to be scored; a
      run with more stops. 1 never stops it.
  """

  workers: int = 0
  timeout_seconds: float = 10.0
  worker_memory: int = 4 * 2**30
  pipeline_chunks: int = 1
  max_unscorable: float = 1.0

  def __post_init__(self):
    check_at_least(self, 0, "workers")
    check_at_most(self, _MAX_WORKERS, "workers")
    if not (self.worker_memory == 0 or _LEAST_MEMORY <= self.worker_memory < 2**63):
      raise ValueError(
        f"worker_memory is {self.worker_memory}; it is in bytes and must be at least "
        f"{_LEAST_MEMORY}, or 0 for no limit"
      )
    check_at_least(self, 1, "pipeline_chunks")
    if not 0 < self.timeout_seconds < math.inf:
      raise ValueError(
        f"timeout_seconds is {self.timeout_seconds}; it must be positive and finite"
      )
    if not 0 <= self.max_unscorable <= 1:
      raise ValueError(f"max_unscorable is {self.max_unscorable}; it must be in [0, 1]")


@dataclasses.dataclass(frozen=True)
class RewardModelConfig:
  """A learned reward model, added to the reward function in training.

  `reward = function_weight * function + weight * model`. Evaluations use the reward
  function alone.

  Attributes:
    path: directory of the model, as written by transformers
      (`*ForSequenceClassification` with one label) or by `experiments.train_reward`; empty
      for no reward model. The model reads the policy's tokens.
    weight: weight of the model's score; with 0 it is only logged.
    function_weight: weight of the reward function; with 0 it is only logged.
    truncation_reward: reward of truncated completions, which the model does not score.
  """

  path: str = ""
  weight: float = 1.0
  function_weight: float = 1.0
  truncation_reward: float = -1.0

  def __post_init__(self):
    for name in ("weight", "function_weight", "truncation_reward"):
      if not math.isfinite(vars(self)[name]):
        raise ValueError(f"reward_model.{name} is {vars(self)[name]}; it must be finite")
    if self.path and not (self.weight or self.function_weight):
      raise ValueError(
        "reward_model.weight and reward_model.function_weight are both 0; nothing would "
        "be rewarded"
      )
