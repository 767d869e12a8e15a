"""Settings of the learner: optimizers, the critic, the update, and the key of a program."""

import dataclasses

from pgax.algorithms import Algorithm
from pgax.errors import check_at_least, check_at_most, check_one_of
from pgax.models.config import DecoderConfig
from pgax.models.lora import LoraConfig

_DTYPES = ("float32", "bfloat16")
OPTIMIZERS = ("adamw", "muon", "adafactor")
_MAX_RATE = 10.0  # Adam moves every parameter by about its learning rate


@dataclasses.dataclass(frozen=True)
class OptimizerConfig:
  """An optimizer with linear warmup and clipping of the global gradient norm.

  Attributes:
    name: `adamw` (arXiv 1711.05101); `muon`, which orthogonalizes the momentum of matrices
      and scales it to the size of AdamW's steps, and takes AdamW for everything else (arXiv
      2502.16982); or `adafactor`, whose second moment is a row and a column (arXiv
      1804.04235).
    learning_rate: learning rate after warmup.
    warmup_steps: number of optimizer steps over which the rate rises linearly from 0.
    decay_steps: number of optimizer steps after which a cosine reaches 0; 0 keeps the rate
      constant.
    clip_norm: largest global norm of a gradient.
    b1: decay rate of the first moment. Muon's momentum decays by 0.95.
    b2: decay rate of the second moment. That of Adafactor rises to 1 with the steps.
    weight_decay: decoupled weight decay, applied to matrices only.
    moment_dtype: dtype that moments of matrices are held in; steps are computed in float32.
      bfloat16 halves them, and a second moment that decays more slowly than 0.99 then
      stands still.
  """

  learning_rate: float = 1e-4
  warmup_steps: int = 10
  decay_steps: int = 0
  clip_norm: float = 1.0
  b1: float = 0.9
  b2: float = 0.95
  weight_decay: float = 0.0
  name: str = "adamw"
  moment_dtype: str = "float32"

  def __post_init__(self):
    check_one_of(self, OPTIMIZERS, "name")
    check_one_of(self, _DTYPES, "moment_dtype")
    check_at_least(self, 0, "learning_rate", "warmup_steps", "decay_steps", "weight_decay")
    check_at_most(self, _MAX_RATE, "learning_rate", "weight_decay")
    if self.decay_steps and self.decay_steps <= self.warmup_steps:
      raise ValueError(
        f"decay_steps is {self.decay_steps}; it must be 0 or above warmup_steps, which is "
        f"{self.warmup_steps}"
      )
    for name in ("b1", "b2"):
      if not 0 <= vars(self)[name] < 1:
        raise ValueError(f"{name} is {vars(self)[name]}; it must be at least 0 and below 1")
    if not self.clip_norm > 0:
      raise ValueError(f"clip_norm is {self.clip_norm}; it must be positive")


def check_decay(optimizer: OptimizerConfig, name: str, updates: int) -> None:
  """Rejects a learning rate that reaches 0 before the last optimizer step.

  Args:
    optimizer: optimizer settings.
    name: name of these settings in messages.
    updates: number of optimizer steps of the stage.

  Raises:
    ValueError: with the value to set instead.
  """
  if 0 < optimizer.decay_steps < updates:
    raise ValueError(
      f"{name}.decay_steps is {optimizer.decay_steps}, but there are {updates} optimizer "
      f"steps; steps after the decay would learn nothing. Raise decay_steps to {updates}, "
      "or set it to 0 for no decay"
    )


@dataclasses.dataclass(frozen=True)
class CriticConfig:
  """Critic settings; ignored by algorithms without a critic.

  Attributes:
    start: initial weights of the critic's decoder. `policy` copies the policy's at the end
      of supervised training, and `fresh` initializes new ones. Anything else is a folder:
      of another run, whose policy's weights are used, or of a reward model in transformers'
      format. The head starts at zero, and from a reward model at its head, so that the
      first values are its scores.
    optimizer: optimizer of the critic.
  """

  start: str = "policy"
  optimizer: OptimizerConfig = OptimizerConfig(learning_rate=3e-4)

  def __post_init__(self):
    if not self.start:
      raise ValueError(
        "critic.start is ''; it must be 'policy', 'fresh', or the folder of a run or of a "
        "reward model"
      )


@dataclasses.dataclass(frozen=True)
class SupervisedConfig:
  """Supervised training on worked solutions, before reinforcement learning.

  The loss is the negative log-likelihood of the solutions' tokens, EOS included; prompt
  tokens are not trained on.

  Attributes:
    steps: number of optimizer steps; 0 skips the stage.
    batch_size: number of token rows in a step. A row holds one solution unless
      `row_tokens` is set.
    row_tokens: width of packed rows, which hold as many prompts and solutions as fit and
      keep them apart; 0 puts one solution in a row that is as wide as the length limits.
      Attention costs the square of the width, so few texts per row are better than many.
    normalize_constant: 0 averages over all trained tokens of a step. Any other number
      divides the sum over each solution's tokens, and solutions are averaged (CS336's
      `masked_normalize`).
    microbatches: number of microbatches that a step is split into, to save memory; the
      gradient does not depend on it.
    eval_every: number of steps between evaluations, the first one before any step; 0
      evaluates at the end of the stage only.
    optimizer: optimizer of this stage.
  """

  steps: int = 0
  batch_size: int = 32
  row_tokens: int = 0
  normalize_constant: float = 0.0
  microbatches: int = 1
  eval_every: int = 0
  optimizer: OptimizerConfig = OptimizerConfig()

  def __post_init__(self):
    check_at_least(self, 0, "steps", "row_tokens", "normalize_constant", "eval_every")
    check_at_least(self, 1, "batch_size", "microbatches")
    if self.batch_size % self.microbatches:
      raise ValueError(
        f"supervised.batch_size is {self.batch_size}; it must be a multiple of "
        f"supervised.microbatches, which is {self.microbatches}"
      )
    check_decay(self.optimizer, "supervised.optimizer", self.steps)


@dataclasses.dataclass(frozen=True)
class LearnerConfig:
  """How updates are computed.

  Without a mixture of experts, and in float32, no setting changes the gradient.

  Attributes:
    microbatches: number of microbatches that an optimizer step is split into, to save
      memory. They are made of completions: one can hold a part of a group, unless the
      surrogate compares the completions of a group.
    length_buckets: number of lengths that microbatches are computed at. Completions of like
      lengths are put together, and padding beyond the next of `length_buckets` equal parts
      of `max_completion_tokens` costs nothing. There are at least as many microbatches,
      and the step is compiled for every length. 0 takes one for 128 tokens, and 6 at most.
    logit_chunk: number of positions of all completions whose logits are in memory at a
      time.
    keep_reference: whether to hold a reference policy and log `kl/ref` even if the
      algorithm does not use one.
    router_aux_coef: coefficient of the load-balancing loss of a mixture of experts, in the
      supervised stage too; 0 for none.
    router_replay: whether the update computes tokens by the experts that computed them in
      the rollout, so that sampler and trainer can't differ in them (arXiv 2510.11370).
    param_dtype: dtype of trained matrices. bfloat16 halves them, and loses updates below
      1/256 of a parameter.
    reference_dtype: dtype of the matrices that are not trained, those of the reference
      policy and those under adapters: `float32`, `bfloat16`, or `auto`, the dtype that the
      model computes in, which changes no number.
    grad_dtype: dtype that gradients are summed in over microbatches.
  """

  microbatches: int = 1
  length_buckets: int = 0
  logit_chunk: int = 128
  keep_reference: bool = False
  router_aux_coef: float = 0.0
  router_replay: bool = False
  param_dtype: str = "float32"
  reference_dtype: str = "auto"
  grad_dtype: str = "float32"

  def __post_init__(self):
    check_at_least(self, 1, "microbatches", "logit_chunk")
    check_at_least(self, 0, "router_aux_coef", "length_buckets")
    check_one_of(self, _DTYPES, "param_dtype", "grad_dtype")
    check_one_of(self, ("auto", *_DTYPES), "reference_dtype")

  @property
  def needs_experts(self) -> bool:
    """Whether an update needs the experts that were chosen in its rollout."""
    return self.router_replay or self.router_aux_coef > 0


@dataclasses.dataclass(frozen=True)
class StepConfig:
  """Everything that decides the compiled steps of a run, and nothing else.

  It is the cache key of the compiled steps (see `compiled.compiled_steps`), and steps are
  built from it alone: a setting that is missing here can't reach a step.

  Attributes:
    model: configuration of the policy's decoder, and of the critic's.
    algorithm: policy-gradient algorithm.
    lora: adapters of the policy.
    optimizer: optimizer of the policy.
    critic_optimizer: optimizer of the critic.
    temperature: temperature of the policy.
    learner: how updates are computed.
    supervised_optimizer: optimizer of the supervised stage.
    supervised_microbatches: see `SupervisedConfig.microbatches`.
    normalize_constant: see `SupervisedConfig.normalize_constant`.
    prompts: number of prompts of a step; see `Learner.prompts`.
  """

  model: DecoderConfig
  algorithm: Algorithm
  lora: LoraConfig = LoraConfig()
  optimizer: OptimizerConfig = OptimizerConfig()
  critic_optimizer: OptimizerConfig = OptimizerConfig()
  temperature: float = 1.0
  learner: LearnerConfig = LearnerConfig()
  supervised_optimizer: OptimizerConfig = OptimizerConfig()
  supervised_microbatches: int = 1
  normalize_constant: float = 0.0
  prompts: int = 0
