"""Configuration of runs: compositions of the rooms' own settings.

A configuration is a value: it can be made, printed, changed (`dataclasses.replace`, or
`pgax.settings.with_settings` for several settings by their paths) and trained. Parts that
functions make, such as task and algorithm, are given as they are, or as an `entry` of the
function, whose arguments then are settings too; `build` makes them.
"""

import dataclasses

from pgax.algorithms import Algorithm
from pgax.algorithms.config import UpdateConfig
from pgax.data.config import DataConfig
from pgax.data.preferences import Preferences
from pgax.data.task import Task
from pgax.distributed.mesh import MeshConfig
from pgax.errors import check_at_least
from pgax.evaluation.config import EvaluationConfig
from pgax.learner.config import (
  CriticConfig,
  LearnerConfig,
  OptimizerConfig,
  StepConfig,
  SupervisedConfig,
)
from pgax.models.config import DecoderConfig
from pgax.models.lora import LoraConfig
from pgax.rollout.config import RewardModelConfig, SamplingConfig, ScoringConfig
from pgax.runs.checkpoint import CheckpointConfig
from pgax.settings import Entry
from pgax.types import RewardFn, StepRewardFn

# Settings that a run may change when it continues: they decide how long it trains and what
# is reported, but not what a step computes.
FREE_SETTINGS = frozenset(
  {
    "steps",
    "max_skipped",
    "samples_every",
    "checkpoints.every",
    "checkpoints.keep",
    "evaluation.every",
    "evaluation.problems",
    "evaluation.samples",
    "evaluation.temperature",
    "evaluation.extract_answer",
    "scoring.max_unscorable",
    "scoring.worker_memory",
    "scoring.workers",
  }
)

# The default decoder: 0.1 M parameters, for the byte tokenizer.
SMALL_DECODER = DecoderConfig(
  vocab_size=259,
  num_layers=2,
  embed_dim=64,
  num_heads=4,
  num_kv_heads=2,
  head_dim=16,
  mlp_dim=192,
  dtype="auto",
)
# Classifiers of transformers do not scale embeddings.
SMALL_REWARD_MODEL = dataclasses.replace(SMALL_DECODER, scale_embeddings=False)


@dataclasses.dataclass(frozen=True)
class RunConfig:
  """The configuration of a run.

  Attributes:
    name: name of the run, shown in its progress bar and report.
    task: problems to train on and to evaluate with, or the entry of a function that makes
      them.
    reward: reward function, or the entry of a function that makes one.
    algorithm: policy-gradient algorithm, or the entry of a function that makes one.
    model: configuration of the decoder. With a `model_path` its files decide it, and only
      `dtype`, `attention` and `remat` can be set.
    steps: number of policy-gradient steps, including those that train the critic alone.
    seed: random seed of everything.
    data: how problems become prompts.
    sampling: how completions are sampled.
    scoring: where and when completions are scored.
    reward_model: learned reward model added to the reward function.
    step_reward: step reward function, for algorithms that learn from step rewards; it
      always runs in the training process; it may be an entry. None for no step rewards.
    optimizer: optimizer of the policy.
    critic: critic settings.
    lora: adapters of the policy. With a rank above 0 only adapters are trained, in every
      stage, over a frozen base that policy and reference share; exports have them merged.
    policy_update: parts added to the algorithm's update, such as an entropy bonus; see
      `trained_algorithm`.
    learner: how updates are computed.
    supervised: supervised training before reinforcement learning.
    model_path: directory of a model in transformers' format to start from; empty for fresh
      weights. The command line has `model.path`, too.
    init_from_run: folder of another run whose policy to start from; empty for fresh
      weights.
    evaluation: when and how held-out problems are evaluated.
    checkpoints: when checkpoints are saved. Supervised steps are short, so their
      checkpoints are ten times as far apart.
    samples_every: number of steps between completions written to `samples.jsonl`; those of
      the first and of the last step are always written.
    max_skipped: number of steps in a row with an update that was not finite, and was
      skipped, that stops the run.
    mesh: layout of the devices.
  """

  name: str
  task: Task | Entry
  reward: RewardFn | Entry
  algorithm: Algorithm | Entry
  model: DecoderConfig = SMALL_DECODER
  steps: int = 100
  seed: int = 0
  data: DataConfig = DataConfig()
  sampling: SamplingConfig = SamplingConfig()
  scoring: ScoringConfig = ScoringConfig()
  reward_model: RewardModelConfig = RewardModelConfig()
  step_reward: StepRewardFn | Entry | None = None
  optimizer: OptimizerConfig = OptimizerConfig()
  critic: CriticConfig = CriticConfig()
  lora: LoraConfig = LoraConfig()
  policy_update: UpdateConfig = UpdateConfig()
  learner: LearnerConfig = LearnerConfig()
  supervised: SupervisedConfig = SupervisedConfig()
  model_path: str = ""
  init_from_run: str = ""
  evaluation: EvaluationConfig = EvaluationConfig()
  checkpoints: CheckpointConfig = CheckpointConfig()
  samples_every: int = 25
  max_skipped: int = 5
  mesh: MeshConfig = MeshConfig()

  def __post_init__(self):
    for name, cls in (("task", Task), ("algorithm", Algorithm)):
      _check_made(self, name, cls)
    if not callable(self.reward) and not isinstance(self.reward, Entry):
      raise ValueError(f"reward is {self.reward!r}; it must be a function")
    _check_sections(self)
    check_at_least(self, 0, "seed", "steps")
    check_at_least(self, 1, "samples_every", "max_skipped")
    if self.model_path and self.init_from_run:
      raise ValueError(
        f"model.path is {self.model_path!r} and init_from_run is {self.init_from_run!r}; "
        "a run can start from one of them only"
      )
    if isinstance(self.algorithm, Algorithm):
      self._check_algorithm(self.trained_algorithm)

  def _check_algorithm(self, algorithm: Algorithm) -> None:
    """Checks settings that depend on others, which only a made configuration has."""
    if self.learner.needs_experts and not self.model.num_experts:
      raise ValueError(
        f"learner.router_aux_coef is {self.learner.router_aux_coef} and "
        f"learner.router_replay is {self.learner.router_replay}; they must be 0 and False "
        "where model.num_experts is 0"
      )
    prompts, minibatches = self.sampling.prompts_per_step, algorithm.minibatches
    if prompts % minibatches:
      raise ValueError(
        f"sampling.prompts_per_step is {prompts}; it must be a multiple of minibatches, "
        f"which is {minibatches}"
      )
    completions = self.sampling.completions_per_step // minibatches
    if self.learner.microbatches > completions:
      raise ValueError(
        f"learner.microbatches is {self.learner.microbatches}; an optimizer step has "
        f"{completions} completions"
      )

  @property
  def trained_algorithm(self) -> Algorithm:
    """The algorithm that the run trains with: `algorithm` and the parts added to it."""
    return self.policy_update.added_to(self.algorithm)

  @property
  def step_config(self) -> StepConfig:
    """Settings that decide the compiled steps."""
    algorithm = self.trained_algorithm
    return StepConfig(
      model=self.model,
      algorithm=algorithm,
      lora=self.lora,
      optimizer=self.optimizer,
      critic_optimizer=self.critic.optimizer,
      temperature=self.sampling.temperature,
      learner=self.learner,
      supervised_optimizer=self.supervised.optimizer,
      supervised_microbatches=self.supervised.microbatches,
      normalize_constant=self.supervised.normalize_constant,
      # Without minibatches no step depends on it.
      prompts=self.sampling.prompts_per_step if algorithm.minibatches > 1 else 0,
    )


@dataclasses.dataclass(frozen=True)
class PreferenceConfig:
  """The configuration of a reward model's training on preference pairs.

  Attributes:
    name: name of the run, shown in its progress bar.
    data: pairs to train on and to evaluate with, or the entry of a function that makes
      them.
    model: configuration of the decoder; the export needs one that transformers has. With a
      `model_path` its files decide it, as for a `RunConfig`.
    model_path: directory of a language model in transformers' format to start from; empty
      for fresh weights. The head starts at zero.
    optimizer: optimizer of the reward model.
    mesh: layout of the devices.
    seed: random seed of everything.
    steps: number of optimizer steps.
    batch_size: number of pairs in a step.
    max_prompt_tokens: maximum number of tokens in a prompt.
    max_completion_tokens: maximum number of tokens in a completion, EOS included.
    eval_every: number of steps between evaluations; there is one after the last step.
    eval_pairs: number of held-out pairs in an evaluation.
    checkpoints: when checkpoints are saved.
    max_skipped: number of steps in a row with an update that was not finite, and was
      skipped, that stops the run.
  """

  name: str
  data: Preferences | Entry
  model: DecoderConfig = SMALL_REWARD_MODEL
  model_path: str = ""
  optimizer: OptimizerConfig = OptimizerConfig(learning_rate=1e-3)
  mesh: MeshConfig = MeshConfig()
  seed: int = 0
  steps: int = 200
  batch_size: int = 32
  max_prompt_tokens: int = 512
  max_completion_tokens: int = 512
  eval_every: int = 50
  eval_pairs: int = 512
  checkpoints: CheckpointConfig = CheckpointConfig(every=100)
  max_skipped: int = 5

  def __post_init__(self):
    _check_made(self, "data", Preferences)
    _check_sections(self)
    check_at_least(self, 0, "seed", "steps")
    check_at_least(self, 1, "batch_size", "max_prompt_tokens", "max_completion_tokens")
    check_at_least(self, 1, "eval_every", "eval_pairs", "max_skipped")


def _check_made(config: object, name: str, cls: type) -> None:
  value = getattr(config, name)
  if not isinstance(value, cls | Entry):
    raise ValueError(
      f"{name} is {value!r}; it must be of type {cls.__name__}, or entry(function) of the "
      "function that makes it"
    )


def _check_sections(config: object) -> None:
  """Checks the types of the settings of the rooms."""
  for field in dataclasses.fields(config):
    cls, value = type(field.default), getattr(config, field.name)
    if dataclasses.is_dataclass(field.default) and not isinstance(value, cls):
      raise ValueError(f"{field.name} is {value!r}; it must be of type {cls.__name__}")
