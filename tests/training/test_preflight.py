"""Checks before a run: every error is reported before anything is compiled."""

import dataclasses

import jax
import pytest

from pgax import algorithms
from pgax.data import Task, byte_tokenizer, mixture
from pgax.distributed.mesh import make_mesh
from pgax.learner.compiled import compiled_steps
from pgax.learner.optimizer import make_optimizer
from pgax.models.lora import LoraConfig
from pgax.rewards import Code, Combined, by_task, final_answer
from pgax.sandbox import Limits
from pgax.tasks import addition_steps
from pgax.training import (
  CheckpointConfig,
  CriticConfig,
  EvaluationConfig,
  LearnerConfig,
  OptimizerConfig,
  RewardModelConfig,
  SamplingConfig,
  ScoringConfig,
  SupervisedConfig,
  UserError,
)
from pgax.training.preflight import check_run, memory
from pgax.types import Example
from tests import tiny


def check(config):
  check_run(config, byte_tokenizer())


def test_a_good_run_passes():
  check(tiny.run_config())


LONG = Task([Example("1+1=", "2", "2"), Example("1234+1=", "2", "2")], [Example("1", "1")])
WORDY = Task([Example("1+1=", "2", "a very long way to say 2")], [Example("1", "1")])
SILENT = Task([Example("1+1=", "2")], [Example("1", "1")])
SENTENCES = Task([Example("one", "1", "1")], [Example("1", "1")])
MOVING, DYNAMIC = algorithms.MovingAverage(), algorithms.DynamicSampling()
DECAYING = OptimizerConfig(decay_steps=1000)
SHAPING = (algorithms.parts.MissingEOS(),)
NONE = SupervisedConfig(steps=0)
QUEUED = SamplingConfig(prompts_per_step=4, group_size=4, slots=9)
ALONE = SamplingConfig(
  prompts_per_step=4, group_size=1, max_prompt_tokens=5, max_completion_tokens=16
)


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"algorithm": algorithms.rloo(), "sampling": ALONE}, "group size is 1; RLOO"),
    ({"sampling": ALONE}, "group size is 1; GroupNormalized compares"),
    (
      {"algorithm": algorithms.dr_grpo(), "sampling": ALONE},
      "group size is 1; GroupCentered",
    ),
    ({"task": LONG}, "prompt '1234\\+1=' has 8 tokens; max_prompt_tokens allows 5"),
    ({"task": WORDY}, "solution .* tokens; max_completion_tokens allows 16"),
    ({"task": SILENT}, "problem '1\\+1=' has no solution"),
    (
      {"model": dataclasses.replace(tiny.CONFIG, vocab_size=100)},
      "model.vocab_size is 100; the tokenizer has 259",
    ),
    (
      {"algorithm": algorithms.dr_grpo(max_length=-2)},
      "max_length is -2; it must be a positive",
    ),
    (
      {"algorithm": algorithms.grpo(clip_low=2.0)},
      "clip_low is 2.0",
    ),
    ({"algorithm": algorithms.grpo_process()}, "step_reward is None; give a function"),
    (
      {"algorithm": dataclasses.replace(algorithms.remax(), greedy_baseline=False)},
      "greedy_baseline is False; set it to True",
    ),
    (
      {"algorithm": dataclasses.replace(algorithms.ppo(), critic=None)},
      "GAE needs the critic's values and the algorithm has no",
    ),
    (
      {"algorithm": algorithms.vc_ppo(pretraining=5)},
      "pretraining is 5 and steps is 5; the critic would be trained in all",
    ),
    ({"algorithm": algorithms.dapo(overlong_buffer=17)}, "buffer is 17"),
    (
      {"supervised": SupervisedConfig(steps=6, row_tokens=20)},
      "supervised.row_tokens is 20; a prompt and a solution may have 21 tokens",
    ),
    (
      {"step_reward": addition_steps},
      "step_reward is given, but advantage Group.* not use",
    ),
    (
      {"algorithm": dataclasses.replace(algorithms.grpo(), greedy_baseline=True)},
      "algorithm.greedy_baseline is given, but advantage",
    ),
    (
      {"algorithm": dataclasses.replace(algorithms.grpo(), baseline=MOVING)},
      "algorithm.baseline is given, but advantage",
    ),
    (
      {"algorithm": dataclasses.replace(algorithms.reinforce(rate=0.1), baseline=None)},
      "MovingAverageBaseline needs",
    ),
    (
      {
        "algorithm": dataclasses.replace(algorithms.grpo_process(), shaping=SHAPING),
        "step_reward": addition_steps,
      },
      "shaping is .*learns from step rewards",
    ),
    (
      {
        "algorithm": dataclasses.replace(algorithms.ppo(), dynamic_sampling=DYNAMIC),
        "sampling": ALONE,
      },
      "sampling.group_size is 1 and the algorithm drops groups",
    ),
    (
      {
        "algorithm": algorithms.grpo_process(),
        "step_reward": addition_steps,
        "task": SENTENCES,
      },
      "step_reward .* fails on the solution of the first problem, 'one'",
    ),
    ({"reward": lambda *_: {"score": 1.0}}, r"scores .'score'.; 'reward' must be among"),
    ({"reward": lambda *_: {"reward": 1.0, "mean": 1.0}}, "a score named 'mean'"),
    ({"reward": lambda *_: {"reward": 1.0, "kind": "sum"}}, "fails .*float.* 'sum'"),
    (
      {
        "task": mixture({"a": SENTENCES, "b": SENTENCES}, {"a": 1.0, "b": 1.0}),
        "reward": by_task({"a": final_answer}),
      },
      "first problem, .*: the problem's task is 'b'",
    ),
    ({"algorithm": algorithms.ppo(lam=95.0), "steps": 20}, r"lam is 95\.0"),
    (
      {
        "algorithm": algorithms.vc_ppo(epochs=2, minibatches=2, pretraining=5),
        "critic": CriticConfig(optimizer=OptimizerConfig(decay_steps=79)),
        "optimizer": OptimizerConfig(decay_steps=60),
        "steps": 20,
      },
      "critic.optimizer.decay_steps is 79, but there are 80 optimizer steps; steps after",
    ),
    (
      {"optimizer": OptimizerConfig(name="muon")},
      "optimizer.name is 'muon' and supervised.optimizer.name is 'adamw'; .* the same",
    ),
    (
      {"optimizer": OptimizerConfig(moment_dtype="bfloat16")},
      "optimizer.moment_dtype is 'bfloat16' and supervised.optimizer.moment_dtype is",
    ),
    (
      {"optimizer": OptimizerConfig(decay_steps=19), "steps": 20},
      "^optimizer.decay_steps is 19, but there are 20 .*Raise decay_steps to 20, or",
    ),
    (
      {"reward_model": RewardModelConfig(function_weight=0.0)},
      r"reward_model.function_weight is 0\.0 and reward_model.path is ''",
    ),
    ({"algorithm": algorithms.copg(beta=0.0)}, "beta is 0"),
    (
      {"scoring": ScoringConfig(pipeline_chunks=3)},
      "prompts_per_step is 4; it must be a multiple of scoring.pipeline_chunks, which is 3",
    ),
    (
      {"scoring": ScoringConfig(pipeline_chunks=2), "sampling": QUEUED},
      "sampling.slots is 9; each of 2 scoring.pipeline_chunks has 8 completions",
    ),
  ],
)
def test_a_bad_run_is_rejected(changes, message):
  with pytest.raises(UserError, match=message):
    check(tiny.run_config(**changes))


@pytest.mark.parametrize(
  ("device", "changes", "message"),
  [
    ("cpu", {"attention": "kernel"}, "'kernel', which .*: there is no kernel for a cpu"),
    (
      "gpu",
      {"attention": "kernel"},
      "'kernel', .*: the dtype is float32; it must be",
    ),
    (
      "gpu",
      {"attention": "kernel", "dtype": "bfloat16", "attention_softcap": 2.0},
      "attention_softcap is 2.0; it must be 0",
    ),
  ],
)
def test_attention_that_cannot_be_computed(device, changes, message, monkeypatch):
  monkeypatch.setattr(jax, "default_backend", lambda: device)
  config = tiny.run_config()
  model = dataclasses.replace(config.model, **changes)
  with pytest.raises(UserError, match=message):
    check(dataclasses.replace(config, model=model))


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    (
      {"algorithm": algorithms.grpo(minibatches=3)},
      "sampling.prompts_per_step is 4; it must be a multiple of minibatches, which is 3",
    ),
    (
      {
        "algorithm": algorithms.grpo(minibatches=2),
        "learner": LearnerConfig(microbatches=100),
      },
      "learner.microbatches is 100; an optimizer step has .* completions",
    ),
    ({"steps": -1}, "steps is -1"),
    ({"seed": 2**31}, "seed is 2147483648"),
  ],
)
def test_sizes_are_checked_as_soon_as_they_are_given(changes, message):
  with pytest.raises(ValueError, match=message):
    tiny.run_config(**changes)


def test_settings_of_parts():
  with pytest.raises(
    ValueError, match=r"temperature is 0\.0; the policy's must be from 0.001"
  ):
    SamplingConfig(temperature=0.0)
  with pytest.raises(ValueError, match="group_size is 0"):
    SamplingConfig(group_size=0)
  with pytest.raises(ValueError, match="batch_size is 0"):
    SupervisedConfig(batch_size=0)
  with pytest.raises(ValueError, match="microbatches is 0; it must be at least 1"):
    LearnerConfig(microbatches=0)
  with pytest.raises(ValueError, match="every is 0; it must be at least 1"):
    EvaluationConfig(every=0)
  with pytest.raises(ValueError, match="keep is 0; it must be at least 1"):
    CheckpointConfig(keep=0)


@pytest.mark.parametrize(
  ("make", "message"),
  [
    (lambda: SamplingConfig(temperature=float("inf")), "temperature is inf"),
    (lambda: SamplingConfig(temperature=1e39), "temperature is 1e\\+39.* to 1000"),
    (lambda: SamplingConfig(temperature=1e-40), "temperature is 1e-40; .* from 0.001"),
    (lambda: EvaluationConfig(temperature=1e-40), "temperature is 1e-40; .* be 0, or"),
    (lambda: OptimizerConfig(learning_rate=1e30), "learning_rate is 1e\\+30; .* most 10"),
    (lambda: OptimizerConfig(weight_decay=11.0), "weight_decay is 11.0; .* most 10"),
    (lambda: algorithms.grpo(epochs=10**11), "epochs is 100000000000; .* most 1000"),
    (lambda: LoraConfig(rank=2.5), "lora.rank is 2.5; .* a whole number"),
    (lambda: OptimizerConfig(warmup_steps=10**13), r"it must be below 2\*\*31"),
    (lambda: EvaluationConfig(every=10**21), r"it must be below 2\*\*31"),
    (lambda: ScoringConfig(worker_memory=2**64), "worker_memory is 18446744073709551616"),
    (lambda: ScoringConfig(workers=100_000), "workers is 100000; .* at most 1024"),
    (
      lambda: tiny.OptimizerConfig(b2=1.0),
      r"b2 is 1\.0; it must be at least 0 and below 1",
    ),
    (lambda: tiny.OptimizerConfig(learning_rate=float("inf")), "learning_rate is inf"),
    (lambda: SupervisedConfig(normalize_constant=-1.0), r"normalize_constant is -1\.0"),
    (lambda: SupervisedConfig(eval_every=-1), "eval_every is -1"),
    (
      lambda: SupervisedConfig(batch_size=6, microbatches=4),
      "batch_size is 6; it must be a multiple of supervised.microbatches, which is 4",
    ),
    (
      lambda: SupervisedConfig(steps=2000, optimizer=DECAYING),
      "decay_steps is 1000, but there are 2000 optimizer steps",
    ),
  ],
)
def test_settings_out_of_range(make, message):
  with pytest.raises(ValueError, match=message):
    make()


@pytest.mark.parametrize("preset", algorithms.presets.ALL)
def test_every_preset_passes(preset):
  steps = addition_steps if preset is algorithms.grpo_process else None
  settings = {"components": ("reward",)} if preset is algorithms.gdpo else {}
  algorithm = preset(minibatches=2, **settings)
  check(tiny.run_config(algorithm=algorithm, step_reward=steps, steps=60))


def test_components_are_scores_of_the_reward():
  with pytest.raises(UserError, match=r"components has 'accuracy'; the scores .* reward"):
    check(tiny.run_config(algorithm=algorithms.gdpo(("accuracy", "reward"))))
  unread = dataclasses.replace(algorithms.grpo(), components=("reward",))
  with pytest.raises(UserError, match="algorithm.components is given, but advantage"):
    check(tiny.run_config(algorithm=unread))


def test_a_deadline_is_longer_than_a_sandboxs_limit():
  code = Code(Limits(seconds=5.0))
  for reward in (code, Combined((("code", code, 1.0), ("any", tiny.any_reward, 0.5)))):
    config = tiny.run_config(
      reward=reward, scoring=ScoringConfig(workers=1, timeout_seconds=5.0)
    )
    with pytest.raises(
      UserError, match=r"scoring.timeout_seconds is 5\.0 .*limits.seconds is 5\.0"
    ):
      check(config)


def test_a_checkpoints_tokenizer_may_have_more_tokens_than_its_model(tmp_path):
  few = dataclasses.replace(tiny.CONFIG, vocab_size=20)
  (tmp_path / "config.json").write_text('{"eos_token_id": 2}')
  config = tiny.run_config(model=few, model_path=str(tmp_path))
  with pytest.raises(UserError, match=r"has token \d+; model.vocab_size is 20"):
    check(config)


def test_a_warm_start_that_is_not_done_needs_no_solutions():
  check(tiny.run_config(task=SILENT, supervised=SupervisedConfig(steps=0)))


def _sampling(**changes):
  sizes = {"prompts_per_step": 4, "group_size": 4, "max_prompt_tokens": 5}
  return SamplingConfig(**(sizes | {"max_completion_tokens": 16} | changes))


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"sampling": _sampling(group_size=10**8)}, "sampling needs at least .*keys and val"),
    (
      {"sampling": _sampling(max_completion_tokens=2 * 10**9)},
      "sampling needs at least .* GiB on a device, which has .* GiB: the state 0.0 GiB",
    ),
    (
      {
        "sampling": _sampling(group_size=2048, max_completion_tokens=4096, slots=8),
        "model": dataclasses.replace(tiny.CONFIG, num_layers=32),
      },
      "an update needs at least .* layer inputs",
    ),
    ({"lora": LoraConfig(rank=100_000)}, "lora.rank is 100000; .* at most rank 32"),
  ],
)
def test_what_cannot_fit_is_refused_with_the_numbers(changes, message, monkeypatch):
  monkeypatch.setattr(memory, "device_memory", lambda: 16 * 2**30)
  with pytest.raises(UserError, match=message):
    check(tiny.run_config(**changes))


def test_the_estimate_is_a_lower_bound_of_the_compiled_programs():
  config = tiny.run_config(sampling=_sampling(max_completion_tokens=6), supervised=NONE)
  mesh = make_mesh()
  steps = compiled_steps(config.step_config, mesh)
  rollout, feedback = tiny.rollout(), tiny.feedback()
  compiled = steps.policy_step.lower(steps.abstract, rollout, feedback).compile()
  analysis = compiled.memory_analysis()
  used = analysis.argument_size_in_bytes + analysis.temp_size_in_bytes
  needs = memory.update_bytes(config, mesh)
  assert 0.2 * used < sum(needs.values()) <= used
  state = sum(
    x.nbytes
    for x in jax.tree.leaves(tiny.state(config.algorithm, make_optimizer(config.optimizer)))
    if not jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key)
  )
  assert needs["the state"] == state


def test_this_machine_has_memory():
  assert 2**30 < memory.device_memory() < 2**50
