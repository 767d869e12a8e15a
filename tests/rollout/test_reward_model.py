"""A learned reward in the loop: finished completions are scored, truncated ones not."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pgax import algorithms
from pgax.data import byte_tokenizer
from pgax.data.prompts import CollatePrompts
from pgax.distributed.mesh import make_mesh
from pgax.learner.microbatches import one_microbatch
from pgax.models import ScalarDecoder, hf, sequence_scores
from pgax.models.heads import headless
from pgax.models.prompts import prompt_states, read_prompts
from pgax.models.scoring import completion_outputs
from pgax.rewards.pool import InProcess
from pgax.rollout.reward_model import RewardModel, combined, model_rewards
from pgax.rollout.sampler import make_sampler
from pgax.rollout.scoring import RewardResults
from pgax.training import (
  CriticConfig,
  RewardModelConfig,
  SamplingConfig,
  ScoringConfig,
  SupervisedConfig,
  UserError,
)
from pgax.training.preflight import check_run
from pgax.training.run import PolicyRun
from pgax.types import Example
from tests import tiny

CONFIG = headless(dataclasses.replace(tiny.CONFIG, scale_embeddings=False))
MODEL = ScalarDecoder(CONFIG)
ROLLOUT = tiny.rollout()
ROLLOUT = ROLLOUT.replace(finished=jnp.arange(16).reshape(4, 4) % 3 > 0)


def lively(seed=0):
  """A reward model whose head is not zero."""
  params = tiny.fresh(MODEL, seed)["params"]
  return {"params": dict(params) | {"head": jnp.linspace(-1, 1, CONFIG.embed_dim)}}


PARAMS = lively()


@pytest.fixture(scope="module")
def expected():
  r = ROLLOUT
  arrays = (r.prompt_tokens, r.prompt_mask, r.tokens, r.token_mask)
  return np.asarray(jax.jit(lambda p: sequence_scores(MODEL, p, *arrays))(PARAMS))


def test_what_was_cut_is_not_scored(expected):
  finished = np.asarray(ROLLOUT.finished)
  result = np.asarray(model_rewards(MODEL, PARAMS, ROLLOUT, -2.5, microbatches=2))
  np.testing.assert_allclose(result[finished], expected[finished], rtol=1e-5, atol=1e-6)
  assert np.all(result[~finished] == -2.5)
  assert len(np.unique(result)) == finished.sum() + 1
  # Not even a model that fails on everything says anything of them.
  broken = jax.tree.map(lambda x: x * jnp.nan, PARAMS)
  result = np.asarray(model_rewards(MODEL, broken, ROLLOUT, -2.5, microbatches=2))
  assert np.all(np.isnan(result[finished])) and np.all(result[~finished] == -2.5)


def results(rewards, valid, **scores):
  rewards, valid = np.array([rewards], np.float32), np.array([valid])
  return RewardResults(
    texts=[["text"] * rewards.shape[1]],
    rewards=np.where(valid, rewards, 0),
    valid=valid,
    scores={name: np.array([x], np.float32) for name, x in scores.items()},
    reasons=np.where(valid, "", "timeout").astype(object),
    detail="" if valid.all() else "timeout: slow",
  )


TOLD = np.array([[0.5, np.nan, 2.0, -1.0]], np.float32)
FINISHED = np.array([[True, True, True, False]])
FUNCTION = results([1.0, 0.0, 9.0, 1.0], [True, True, False, True], accuracy=[1, 0, 1, 0])


def test_weights_of_function_and_model():
  result = combined(
    RewardModelConfig("model", weight=2.0, function_weight=3.0), FUNCTION, TOLD, FINISHED
  )
  assert result.valid.tolist() == [[True, False, False, True]]
  assert result.rewards.tolist() == [[3.0 + 1.0, 0.0, 0.0, 3.0 - 2.0]]
  assert result.reasons.tolist() == [["", "nan", "timeout", ""]]
  assert result.detail == "timeout: slow"
  nan = np.nan
  np.testing.assert_array_equal(result.scores["model"], [[0.5, nan, nan, nan]])
  np.testing.assert_array_equal(result.scores["function"], [[1.0, nan, nan, 1.0]])
  np.testing.assert_array_equal(result.scores["accuracy"], [[1.0, nan, nan, 0.0]])


def test_what_is_only_looked_at_spoils_nothing():
  result = combined(
    RewardModelConfig("model", function_weight=0.0), FUNCTION, TOLD, FINISHED
  )
  assert result.rewards.tolist() == [[0.5, 0.0, 2.0, -1.0]]
  assert result.reasons.tolist() == [["", "nan", "", ""]]
  assert result.detail == "nan: the reward model's score is nan"
  result = combined(RewardModelConfig("model", weight=0.0), FUNCTION, TOLD, FINISHED)
  assert result.rewards.tolist() == [[1.0, 0.0, 0.0, 1.0]]
  assert result.reasons.tolist() == [["", "", "timeout", ""]]
  with pytest.raises(UserError, match="returned a score named 'model'; with a reward"):
    combined(RewardModelConfig(), results([1.0], [True], model=[1.0]), TOLD, FINISHED)


@pytest.mark.parametrize(("preset", "cut"), [(algorithms.grpo, 1), (algorithms.remax, 2)])
def test_collected_with_the_functions(preset, cut):
  tokenizer, setting = (
    byte_tokenizer(),
    RewardModelConfig("model", weight=2.0, truncation_reward=-7.0),
  )
  scoring = ScoringConfig(pipeline_chunks=cut)
  config = tiny.run_config(algorithm=preset(), reward_model=setting, scoring=scoring)
  batch = CollatePrompts(tokenizer, 5)([Example(f"{i}+1=", str(i)) for i in range(4)])
  source = tiny.rollouts(
    config,
    # Many tokens end a text, so that some texts end.
    make_sampler(
      SamplingConfig(max_completion_tokens=16),
      tiny.MODEL,
      tokenizer,
      make_mesh(),
      range(2, 12),
    ),
    InProcess(tiny.any_reward),
    tiny.Prompts(lambda _: batch),
    RewardModel(setting, MODEL, PARAMS),
  )
  experience = tiny.experience(source)
  rollout, scores = experience.rollout, experience.results.scores
  feedback, metrics = experience.feedback, experience.metrics
  finished = np.asarray(rollout.finished)
  assert finished.any() and not finished.all()
  model = np.asarray(model_rewards(MODEL, PARAMS, rollout, -7.0))
  np.testing.assert_allclose(feedback.rewards, scores["function"] + 2.0 * model, rtol=1e-5)
  assert set(np.unique(scores["function"])) == {0.0, 1.0}
  assert metrics["reward/model"] == pytest.approx(model[finished].mean(), rel=1e-4)
  assert metrics["reward/function"] == pytest.approx(scores["function"].mean())
  if preset is algorithms.remax:
    greedy = set(np.asarray(feedback.greedy_rewards).tolist())
    assert greedy == {-14.0, -13.0}  # all of them were cut


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
  path = tmp_path_factory.mktemp("scorer") / "saved"
  hf.save_reward_model(path, CONFIG, PARAMS, byte_tokenizer())
  return path


def test_what_is_no_reward_model_is_rejected(saved, tmp_path):
  def check(path, **changes):
    changes = {"reward_model": RewardModelConfig(str(path))} | changes
    check_run(tiny.run_config(**changes), byte_tokenizer())

  check(saved)
  with pytest.raises(UserError, match="nowhere.*config.json can't be read"):
    check(tmp_path / "nowhere")
  wider = dataclasses.replace(tiny.CONFIG, vocab_size=300)
  with pytest.raises(UserError, match="a model of 260 tokens; the policy has 300"):
    check(saved, model=wider)
  other, tokenizer = tmp_path / "other", byte_tokenizer()
  tokenizer.add_tokens(["<more>"])
  hf.save_reward_model(other, CONFIG, PARAMS, tokenizer)
  with pytest.raises(UserError, match="whose tokenizer differs from the policy's"):
    check(other)
  (other / "model.safetensors").unlink()
  with pytest.raises(UserError, match="model.safetensors is missing"):
    check(other)
  with pytest.raises(ValueError, match="are both 0; nothing would"):
    RewardModelConfig(str(saved), weight=0.0, function_weight=0.0)
  with pytest.raises(
    ValueError, match="reward_model.truncation_reward is nan; it must be finite"
  ):
    RewardModelConfig("model", truncation_reward=float("nan"))


def starting_critic(tmp_path, **changes):
  """A run of PPO whose critic starts from a saved reward model."""
  hf.save_reward_model(tmp_path / "model", CONFIG, PARAMS, byte_tokenizer())
  model = dataclasses.replace(tiny.CONFIG, scale_embeddings=False, **changes)
  critic = CriticConfig(start=str(tmp_path / "model"))
  return tiny.run_config(
    algorithm=algorithms.ppo(), model=model, critic=critic, supervised=SupervisedConfig()
  )


def test_a_critic_starts_from_a_reward_model_and_its_head(tmp_path):
  config, tokenizer = starting_critic(tmp_path), byte_tokenizer()
  check_run(config, tokenizer)
  run = PolicyRun(config, tokenizer, InProcess(config.reward))
  state = run.start()
  jax.tree.map(np.testing.assert_array_equal, state.critic_params, PARAMS)
  # Its value after the last token is the score of the completion.
  prompts = ROLLOUT.prompt_tokens, ROLLOUT.prompt_mask
  states = prompt_states(read_prompts(MODEL, PARAMS, *prompts))
  tokens = one_microbatch(ROLLOUT).tokens()
  _, end = completion_outputs(MODEL, PARAMS, states, tokens, to_end=True)
  arrays = (ROLLOUT.prompt_tokens, ROLLOUT.prompt_mask, ROLLOUT.tokens, ROLLOUT.token_mask)
  scores = sequence_scores(MODEL, PARAMS, *arrays)
  np.testing.assert_allclose(end, scores, rtol=1e-4, atol=1e-5)


def test_a_critic_of_another_decoder_is_rejected(tmp_path):
  config = starting_critic(tmp_path, rope_theta=500.0)
  message = r"critic.start: model.rope_theta is 10000\.0 in the reward model .* and 500\.0"
  with pytest.raises(UserError, match=message):
    check_run(config, byte_tokenizer())
