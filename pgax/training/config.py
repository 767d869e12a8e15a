"""Everything that decides a run, as frozen dataclasses; bad values are refused here."""

import dataclasses
import math

from pgax.algorithms import Algorithm
from pgax.data.task import Task
from pgax.models.config import DecoderConfig
from pgax.models.lora import LoraConfig
from pgax.rewards.answers import marked_answer
from pgax.training.draws import check_draws
from pgax.training.optimizer_config import OptimizerConfig, at_least, check_decay
from pgax.training.reward_config import RewardModelConfig
from pgax.types import AnswerFn, RewardFn, StepRewardFn


@dataclasses.dataclass(frozen=True)
class SupervisedConfig:
  """Supervised training on worked solutions, before any reward.

  The loss is the negative log-likelihood of the solutions' tokens, EOS included; prompts
  are read and not learned.

  Attributes:
    steps: optimizer steps; 0 for none of this stage.
    batch_size: rows of tokens in a step, each with one solution unless they are packed.
    row_tokens: width of rows that are packed with as many prompts and solutions as fit,
      none of which sees another; 0 for one in a row, as wide as the limits on length.
      Attention costs the square of it, so a few texts in a row are better than many.
    normalize_constant: 0 takes the mean over all learned tokens of a step. Another number
      divides the sum over each solution's tokens, and the mean over solutions is taken
      (CS336's `masked_normalize`).
    microbatches: parts that a step is computed in, to save memory; the gradient does not
      depend on it.
    eval_every: steps between evaluations, the first of them before any step; 0 for none but
      the one at the end, where reinforcement begins.
    optimizer: of this stage.
  """

  steps: int = 1000
  batch_size: int = 32
  row_tokens: int = 0
  normalize_constant: float = 0.0
  microbatches: int = 1
  eval_every: int = 0
  optimizer: OptimizerConfig = OptimizerConfig(
    learning_rate=3e-3, warmup_steps=20, decay_steps=1000
  )

  def __post_init__(self):
    at_least(self, 0, "steps", "row_tokens", "normalize_constant", "eval_every")
    at_least(self, 1, "batch_size", "microbatches")
    if self.batch_size % self.microbatches:
      raise ValueError(
        f"supervised.batch_size is {self.batch_size}; it must be a multiple of "
        f"supervised.microbatches, which is {self.microbatches}"
      )
    check_decay(self.optimizer, "supervised.optimizer", self.steps)


@dataclasses.dataclass(frozen=True)
class CriticConfig:
  """The critic of an algorithm that has one; plays no part with any other.

  Attributes:
    start: where its decoder's weights come from: `policy` copies the policy's at the end
      of the warm start, `fresh` draws new ones, and anything else is the folder of another
      run, whose policy's are taken. The head starts at zero.
    optimizer: of the critic.
  """

  start: str = "policy"
  optimizer: OptimizerConfig = OptimizerConfig(learning_rate=3e-4)

  def __post_init__(self):
    if not self.start:
      raise ValueError(
        "critic.start is ''; allowed are 'policy', 'fresh' and the folder of a run"
      )


@dataclasses.dataclass(frozen=True)
class SamplingConfig:
  """How completions are drawn.

  Attributes:
    prompts: number of prompts in a step, `N`.
    group: completions of each prompt, `G`.
    max_prompt_tokens: limit of a prompt's length, `P`.
    max_tokens: limit of a completion's length, EOS included, `T`.
    temperature: of the policy, in sampling and training alike.
    top_k: number of likeliest tokens to draw from; 0 for all. As with `top_p`, `min_p`,
      `logit_bias` and `forbidden`, the policy that learns is the one without it; an
      algorithm with a correction makes up for the difference.
    top_p: draws from the likeliest tokens that together reach this probability; 1 for all.
    min_p: draws from tokens at least this fraction as likely as the likeliest; 0 for all.
    min_tokens: number of tokens that a completion has before it may end.
    stop: strings that end a completion, with the token that completes one; tokens may cut
      them anywhere.
    logit_bias: pairs of a token id and what is added to its logit.
    forbidden: ids of tokens never to be drawn.
    slots: number of completions decoded at a time, each followed by the next one waiting as
      soon as it ends; 0 for all at a time. It must be a multiple of the number of devices
      that prompts are spread over. Fewer slots take less memory, and less time where
      lengths differ much.
  """

  prompts: int = 32
  group: int = 8
  max_prompt_tokens: int = 9
  max_tokens: int = 40
  temperature: float = 1.0
  top_k: int = 0
  top_p: float = 1.0
  min_p: float = 0.0
  min_tokens: int = 0
  stop: tuple[str, ...] = ()
  logit_bias: tuple[tuple[int, float], ...] = ()
  forbidden: tuple[int, ...] = ()
  slots: int = 0

  def __post_init__(self):
    # Lists, from JSON say, would leave the configuration without a hash.
    if isinstance(self.stop, str):
      raise ValueError(f"stop is {self.stop!r}; it must be a tuple of strings")
    for name in ("stop", "forbidden"):
      object.__setattr__(self, name, tuple(vars(self)[name]))
    object.__setattr__(self, "logit_bias", tuple(map(tuple, self.logit_bias)))
    if not all(len(pair) == 2 for pair in self.logit_bias):
      raise ValueError(
        f"logit_bias is {self.logit_bias}; it must be pairs of a token id and a number"
      )
    at_least(self, 1, "prompts", "group", "max_prompt_tokens", "max_tokens")
    at_least(self, 0, "top_k", "min_tokens", "slots")
    if not 0 < self.top_p <= 1:
      raise ValueError(f"top_p is {self.top_p}; it must be above 0 and at most 1")
    if not 0 <= self.min_p <= 1:
      raise ValueError(f"min_p is {self.min_p}; it must be 0 to 1")
    if self.min_tokens >= self.max_tokens:
      raise ValueError(
        f"min_tokens is {self.min_tokens} and max_tokens is {self.max_tokens}; a "
        "completion could not end by itself"
      )
    if self.slots > self.prompts * self.group:
      raise ValueError(
        f"slots is {self.slots}; a step has {self.prompts * self.group} completions"
      )
    if not all(self.stop) or not all(isinstance(x, str) for x in self.stop):
      raise ValueError(f"stop is {self.stop}; each must be a string that is not empty")
    if not 0 < self.temperature < math.inf:
      raise ValueError(
        f"temperature is {self.temperature}; the policy's must be positive (evaluation "
        "decodes greedily by itself)"
      )


@dataclasses.dataclass(frozen=True)
class ScoringConfig:
  """Where and when completions are scored, and how much may go wrong there.

  Attributes:
    workers: number of processes that the reward function runs in; see `rewards.pool.Pool`.
      0 runs it in the process that trains: what it raises ends the run, and what it hangs
      on hangs.
    deadline: seconds that a completion may take in a worker, which is then killed.
    parts: number of parts that a step's prompts are sampled in, which divides
      `sampling.prompts`. While the host scores one, the devices draw the next: where that
      takes as long, a step waits for the scoring of the last part alone. The devices have
      smaller batches for it. What is drawn is the same for any number, `logp` up to
      rounding. Everything is still drawn by the policy that learns from it: with the next
      step's rollout drawn ahead, results would be off-policy and depend on how long
      scoring took, and a run that was interrupted would not end with the same bits.
    max_unscorable: fraction of a step's completions; the run stops when more of them could
      not be scored. 1 never stops it.
  """

  workers: int = 0
  deadline: float = 10.0
  parts: int = 1
  max_unscorable: float = 1.0

  def __post_init__(self):
    at_least(self, 0, "workers")
    at_least(self, 1, "parts")
    if not 0 < self.deadline < math.inf:
      raise ValueError(f"deadline is {self.deadline}; it must be positive, and finite")
    if not 0 <= self.max_unscorable <= 1:
      raise ValueError(f"max_unscorable is {self.max_unscorable}; it must be in [0, 1]")


@dataclasses.dataclass(frozen=True)
class DataConfig:
  """What becomes of problems before the model is given them.

  Attributes:
    overlong_prompts: what is done with a prompt of more than `sampling.max_prompt_tokens`:
      `error` refuses the run, and `drop` leaves the problem out and counts it.
    chat_template: whether prompts are rendered by the tokenizer's chat template, as the
      turn of a user, up to where the assistant's begins.
    system_prompt: of a turn of the system in front of it; empty for none.
  """

  overlong_prompts: str = "error"
  chat_template: bool = False
  system_prompt: str = ""

  def __post_init__(self):
    if self.overlong_prompts not in ("error", "drop"):
      raise ValueError(
        f"overlong_prompts is {self.overlong_prompts!r}; allowed are 'error' and 'drop'"
      )
    if self.system_prompt and not self.chat_template:
      raise ValueError(
        f"system_prompt is {self.system_prompt!r} and chat_template is False; without the "
        "template there is no turn of a system"
      )


@dataclasses.dataclass(frozen=True)
class MeshConfig:
  """How devices are laid out; see `training.mesh.make_mesh`.

  Attributes:
    fsdp: devices that a parameter's `embed` axis is split over.
    model: devices that heads, feed-forward and vocabulary are split over.
  """

  fsdp: int = 1
  model: int = 1


@dataclasses.dataclass(frozen=True)
class RunConfig:
  """A run.

  Attributes:
    name: what to call the run in its progress bar and report.
    task: problems to train on and to be judged by.
    reward: scores a completion.
    algorithm: the policy-gradient algorithm.
    model: shape of the decoder.
    data: what becomes of problems before the model is given them.
    sampling: how completions are drawn.
    reward_model: a learned one beside the reward function.
    scoring: where the reward function runs. Rewards of steps are computed in the process
      that trains, always.
    step_reward: rewards the steps of a completion, for algorithms that learn from steps;
      None for none.
    answer: reads the answer that a completion votes for in an evaluation with several
      samples; None for no vote.
    optimizer: of the policy.
    critic: of the algorithm's critic.
    lora: of the policy's adapters. With a rank they are all that learns of it, in the warm
      start too, over a frozen base that policy and reference share; what is exported is
      merged.
    model_path: directory of a model as transformers saves it, whose weights this run starts
      from and whose shape `model` is; empty for fresh weights.
    policy_from: folder of another run whose policy this one starts from; empty for fresh
      weights. A warm start, if there is one, goes on from there.
    supervised: training on worked solutions, before any reward.
    mesh: layout of the devices.
    seed: of everything random.
    steps: number of policy-gradient steps, those in which the critic alone learns included.
    logit_chunk: positions of all completions whose logits stand in memory at a time; the
      gradient does not depend on it.
    microbatches: parts that an optimizer step's batch is computed in, to save memory; the
      gradient does not depend on it.
    eval_every: steps between evaluations; there is one before the first and after the
      last step whatever this is.
    eval_problems: number of held-out problems in an evaluation.
    eval_samples: completions of each of them.
    eval_temperature: that they are drawn at, all other settings of sampling being those of
      the run; 0 is greedy, for one of each.
    checkpoint_every: steps between checkpoints.
    keep_checkpoints: how many of the last ones stay.
    samples_every: steps between completions written to `samples.jsonl`; those of the first
      and of the last step are whatever this is.
  """

  name: str
  task: Task
  reward: RewardFn
  algorithm: Algorithm
  model: DecoderConfig = DecoderConfig()
  data: DataConfig = DataConfig()
  sampling: SamplingConfig = SamplingConfig()
  reward_model: RewardModelConfig = RewardModelConfig()
  scoring: ScoringConfig = ScoringConfig()
  step_reward: StepRewardFn | None = None
  answer: AnswerFn | None = marked_answer
  optimizer: OptimizerConfig = OptimizerConfig()
  critic: CriticConfig = CriticConfig()
  lora: LoraConfig = LoraConfig()
  model_path: str = ""
  policy_from: str = ""
  supervised: SupervisedConfig = SupervisedConfig()
  mesh: MeshConfig = MeshConfig()
  seed: int = 0
  steps: int = 100
  logit_chunk: int = 128
  microbatches: int = 1
  eval_every: int = 5
  eval_problems: int = 256
  eval_samples: int = 1
  eval_temperature: float = 0.0
  checkpoint_every: int = 25
  keep_checkpoints: int = 2
  samples_every: int = 25

  def __post_init__(self):
    for name, cls in (("task", Task), ("algorithm", Algorithm)):
      if not isinstance(vars(self)[name], cls):
        raise ValueError(
          f"{name} is {vars(self)[name]!r}; it must be a value of {cls.__name__}, which in "
          "a config is entry(function) of what makes it"
        )
    at_least(self, 0, "seed", "steps")
    if self.seed >= 2**31:  # the data's shuffle takes 32 bits, one of them tells the stage
      raise ValueError(f"seed is {self.seed}; it must be below 2**31")
    at_least(self, 1, "logit_chunk", "microbatches")
    at_least(self, 1, "eval_every", "eval_problems")
    check_draws(self.eval_samples, self.eval_temperature, "eval_")
    at_least(self, 1, "checkpoint_every", "keep_checkpoints", "samples_every")
    if self.model_path and self.policy_from:
      raise ValueError(
        f"model.path is {self.model_path!r} and policy_from is {self.policy_from!r}; only "
        "one of them can give the weights to start from"
      )
    parts = self.algorithm.minibatches * self.microbatches
    if self.sampling.prompts % parts:
      raise ValueError(
        f"sampling.prompts is {self.sampling.prompts}; it must be a multiple of "
        f"minibatches * microbatches = {self.algorithm.minibatches} * {self.microbatches}"
      )
