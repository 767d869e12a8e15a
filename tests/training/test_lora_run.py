"""Adapters in a run: they alone learn, over a base that policy and reference share."""

import dataclasses
import json
import math
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from pgax import algorithms
from pgax.data import byte_tokenizer
from pgax.distributed.mesh import make_mesh
from pgax.distributed.partitioning import shardings_of
from pgax.learner.forward import completion_logp
from pgax.learner.learner import Learner
from pgax.learner.policy_step import make_policy_step
from pgax.learner.state import abstract_state, init_state
from pgax.models.lora import merge, merged
from pgax.runs.checkpoint import read_checkpoints
from pgax.runs.json_lines import read_lines
from pgax.training import LoraConfig, SupervisedConfig, UserError, driver, train
from pgax.training.policy import load_params, load_policy
from pgax.training.preflight import check_run
from tests import tiny

LORA = LoraConfig(rank=2, alpha=6.0)
LEARNER = Learner(tiny.MODEL, algorithms.grpo(), optax.adam(1e-2), lora=LORA)
ROLLOUT, FEEDBACK = tiny.rollout(), tiny.feedback()
CONFIG = tiny.run_config(lora=LORA, steps=3)
RECORD = {"lora": {"rank": 2, "alpha": 6.0, "targets": list(LORA.targets)}}


def size(tree):
  return sum(math.prod(x.shape) * x.dtype.itemsize for x in jax.tree.leaves(tree))


def same(a, b):
  return all(
    np.array_equal(x, y)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
  )


def test_the_reference_and_the_optimizer_cost_no_second_copy():
  state = abstract_state(LEARNER, make_mesh())
  whole = abstract_state(dataclasses.replace(LEARNER, lora=LoraConfig()), make_mesh())
  assert whole.base == () and size(state.base) == size(whole.params)
  adapters = size(state.params)
  assert 0 < adapters < 0.25 * size(state.base)
  assert size(state.frozen["reference"]) == adapters
  assert size(state.opt_state) == 2 * adapters + 4  # moments, and a count
  counts = (state.stage, state.step, state.total_steps)
  rest = size((counts, state.algorithm_state)) + 8  # and the key
  parts = (state.base, state.params, state.frozen["reference"], state.opt_state)
  assert size(parts) + rest == size(state.replace(key=())) + 8
  assert size(whole.replace(key=())) > 4 * size(whole.params)


@pytest.fixture(scope="module")
def stepped():
  """The state before and after three steps, and their metrics."""
  shardings = shardings_of(abstract_state(LEARNER, make_mesh()))
  step = make_policy_step(LEARNER, shardings)
  state, reported = init_state(LEARNER, make_mesh(), seed=0), []
  start = jax.tree.map(np.asarray, state.replace(key=()))
  for _ in range(3):
    state, update = step(state, ROLLOUT, FEEDBACK)
    reported.append({name: float(value) for name, value in update.metrics.items()})
  assert step._cache_size() == 1
  return start, state, reported


def test_adapters_alone_learn(stepped):
  start, state, metrics = stepped
  assert same(start.base, state.base) and same(
    start.frozen["reference"], state.frozen["reference"]
  )
  moved = [
    float(jnp.abs(a - b).max())
    for a, b in zip(
      jax.tree.leaves(state.params), jax.tree.leaves(start.params), strict=True
    )
  ]
  assert min(moved) > 0
  assert (
    metrics[0]["kl/ref"] == 0 < metrics[1]["kl/ref"]
  )  # the reference is the base as it was
  # What earned more than its group has become likelier.
  logp = jax.jit(lambda params: completion_logp(tiny.MODEL, params, ROLLOUT)[0])
  change = logp(merged(LORA, state.base, state.params)) - logp(state.base)
  better = FEEDBACK.rewards - FEEDBACK.rewards.mean(-1, keepdims=True)
  assert float(jnp.sum(better * jnp.sum(change * ROLLOUT.action_mask, -1))) > 0.1


def test_sampling_needs_no_copy_of_what_is_not_adapted(stepped):
  state = stepped[1]
  used = merged(LORA, state.base, state.params)["params"]
  ours, theirs = used["embedding"], state.base["params"]["embedding"]
  assert ours.unsafe_buffer_pointer() == theirs.unsafe_buffer_pointer()
  assert merged(LoraConfig(), (), used) is used


@pytest.fixture(scope="module")
def run(tmp_path_factory):
  workdir = tmp_path_factory.mktemp("whole")
  result = train(CONFIG, byte_tokenizer(), workdir, RECORD, progress=False)
  return result.state, workdir


def test_a_run_and_its_policy(run):
  state, workdir = run
  rows = read_lines(workdir / "metrics.jsonl")[1:]
  assert [row["step"] for row in rows] == [1, 2, 3]
  assert all(row["ratio/sampler_error"] < 1e-5 for row in rows)
  # Two passes over the same weights, so log-ratios of rounding: their squares.
  assert rows[0]["kl/ref"] < 1e-14 and any(row["grad_norm"] > 0 for row in rows)
  # The warm start moved the adapters, and the reference is where it ended.
  assert any(bool(jnp.any(x)) for x in jax.tree.leaves(_b(state.frozen["reference"])))
  assert not same(state.params, state.frozen["reference"])
  expected = merge(LORA, state.base, state.params)
  for result in (
    load_policy(CONFIG, workdir).params,
    load_params(tiny.MODEL, make_mesh(), workdir),
  ):
    for ours, theirs in zip(
      jax.tree.leaves(result), jax.tree.leaves(expected), strict=True
    ):
      np.testing.assert_allclose(ours, theirs, atol=1e-6)
  with pytest.raises(UserError, match=r"does not fit the configuration: base\..* absent"):
    load_policy(dataclasses.replace(CONFIG, lora=LoraConfig()), workdir)


def _b(adapters):
  flat = jax.tree_util.tree_leaves_with_path(adapters)
  return [x for path, x in flat if path[-1].key == "b"]


def test_stopped_and_given_again(run, tmp_path):
  for steps in (1, 3):
    config = dataclasses.replace(CONFIG, steps=steps)
    result = train(config, byte_tokenizer(), tmp_path, {}, progress=False)
  for ours, theirs in zip(*map(jax.tree.leaves, (result.state, run[0])), strict=True):
    if not jax.dtypes.issubdtype(ours.dtype, jax.dtypes.prng_key):
      np.testing.assert_array_equal(ours, theirs)


def test_the_base_is_saved_once(run, tmp_path):
  state, workdir = run
  copy = shutil.copytree(workdir, tmp_path / "run")
  saved = [x for x in (copy / "checkpoints").iterdir() if x.is_dir()]
  assert len(saved) == 2
  for folder in saved:
    assert "('base', '" not in (folder / "state" / "_METADATA").read_text()
  with read_checkpoints(copy) as checkpoints:
    like = {"base": jax.tree.map(jnp.zeros_like, state.base)}
    assert same(checkpoints.restore_fields(like)["base"], state.base)
  shutil.rmtree(copy / "frozen")
  longer = dataclasses.replace(CONFIG, steps=4)
  for use in (
    lambda: load_policy(CONFIG, copy),
    lambda: train(longer, byte_tokenizer(), copy, RECORD, progress=False),
  ):
    with pytest.raises(UserError, match=r"can.t be read: .*/frozen/.*no good one left"):
      use()


def test_killed_after_a_checkpoint(run, tmp_path, monkeypatch):
  real, died = driver.save, []

  def dying(run, state):
    real(run, state)
    if int(state.step) == 2 and not died:
      died.append(1)
      raise MemoryError

  monkeypatch.setattr(driver, "save", dying)
  with pytest.raises(MemoryError):
    train(CONFIG, byte_tokenizer(), tmp_path, {}, progress=False)
  result = train(CONFIG, byte_tokenizer(), tmp_path, {}, progress=False)
  assert result.finished and same(result.state.base, run[0].base)
  assert same(result.state.params, run[0].params)
  assert same(result.state.opt_state, run[0].opt_state)


@pytest.mark.slow
def test_another_run_starts_from_the_merged_policy(run, tmp_path):
  config = dataclasses.replace(
    CONFIG,
    init_from_run=str(run[1]),
    algorithm=algorithms.ppo(epochs=1),
    optimizer=tiny.OptimizerConfig(learning_rate=0.0, warmup_steps=0),
    supervised=SupervisedConfig(steps=0),
    steps=1,
  )
  state = train(config, byte_tokenizer(), tmp_path, {}, progress=False).state
  theirs = load_params(tiny.MODEL, make_mesh(), run[1])
  assert same(state.base, theirs) and not any(map(jnp.any, _b(state.frozen["reference"])))
  # The critic starts from the merged policy; its head, at zero, still hides it from a step.
  assert same(state.critic_params["params"]["decoder"], theirs["params"])


def test_what_is_wrong_is_said_before_the_start():
  bad = dataclasses.replace(LORA, targets=("blocks.attention.*", "blocks.mpl.*"))
  with pytest.raises(UserError, match=r"'blocks.mpl.\*', which matches none of blocks.att"):
    check_run(tiny.run_config(lora=bad), byte_tokenizer())
  check_run(tiny.run_config(lora=LORA), byte_tokenizer())


def test_a_saved_setting_is_a_setting():
  saved = json.loads(json.dumps(dataclasses.asdict(LORA)))
  assert LoraConfig(**saved) == LORA and hash(LoraConfig(**saved)) == hash(LORA)
