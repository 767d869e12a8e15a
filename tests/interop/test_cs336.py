"""The interface of CS336's assignment 5 agrees with NumPy, and rejects bad arguments."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgax.data import byte_tokenizer
from pgax.interop import cs336
from tests.strategies import floats, masks

SHAPE, COLUMN = (4, 5), (4, 1)
TEXTS = ["1.0", "0.0", "0.5", "2.5", "1.0", "1.0"]


def reward_fn(response, truth):
  return {"reward": float(response), "format_reward": float(truth == "yes")}


@pytest.mark.parametrize("by_std", [True, False])
@given(st.lists(st.sampled_from(TEXTS), min_size=6, max_size=6))
def test_group_normalized_rewards(by_std, responses):
  advantages, raw, metadata = cs336.compute_group_normalized_rewards(
    reward_fn, responses, ["yes"] * 3 + ["no"] * 3, 3, 1e-6, by_std
  )
  expected = []
  for start in (0, 3):
    group = np.array([float(x) for x in responses[start : start + 3]])
    centered = group - group.mean()
    expected.extend(centered / (group.std(ddof=1) + 1e-6) if by_std else centered)
  np.testing.assert_allclose(advantages, expected, rtol=1e-4, atol=1e-5)
  np.testing.assert_allclose(raw, [float(x) for x in responses])
  assert metadata["format_reward"] == 0.5
  assert metadata["reward_mean"] == pytest.approx(np.mean([float(x) for x in responses]))
  assert {"reward_std", "reward_min", "reward_max"} <= metadata.keys()


@given(floats(COLUMN), floats(SHAPE, -3, 0), floats(SHAPE, -3, 0))
def test_losses(advantages, logp, old_logp):
  naive = cs336.compute_naive_policy_gradient_loss(advantages, logp)
  np.testing.assert_allclose(naive, -advantages * logp, rtol=1e-5, atol=1e-6)
  loss, metadata = cs336.compute_grpo_clip_loss(advantages, logp, old_logp, 0.2)
  ratio = np.exp(logp.astype(np.float64) - old_logp)
  expected = -np.minimum(ratio * advantages, np.clip(ratio, 0.8, 1.2) * advantages)
  np.testing.assert_allclose(loss, expected, rtol=1e-4, atol=1e-5)
  assert metadata["clipped"].shape == SHAPE
  for loss_type, options, expected in (
    ("no_baseline", {"raw_rewards": advantages}, naive),
    ("reinforce_with_baseline", {"advantages": advantages}, naive),
    (
      "grpo_clip",
      {"advantages": advantages, "old_log_probs": old_logp, "cliprange": 0.2},
      loss,
    ),
  ):
    selected, _ = cs336.compute_policy_gradient_loss(logp, loss_type, **options)
    np.testing.assert_array_equal(selected, expected)


@given(floats(SHAPE), masks(SHAPE))
def test_masked_reductions(x, mask):
  count = np.maximum(mask.sum(-1), 1)
  np.testing.assert_allclose(
    cs336.masked_mean(x, mask, dim=1), (x * mask).sum(-1) / count, rtol=1e-4, atol=1e-5
  )
  mean = (x * mask).sum() / max(mask.sum(), 1)
  np.testing.assert_allclose(cs336.masked_mean(x, mask), mean, rtol=1e-4, atol=1e-5)
  for dim, axis in ((0, 0), (1, 1), (None, None)):
    np.testing.assert_allclose(
      cs336.masked_normalize(x, mask, 8.0, dim),
      (x * mask).sum(axis) / 8,
      rtol=1e-4,
      atol=1e-5,
    )


def test_entropy():
  logits = np.random.default_rng(0).normal(size=(2, 3, 4))
  p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
  np.testing.assert_allclose(
    cs336.compute_entropy(logits), -(p * np.log(p)).sum(-1), rtol=1e-5
  )
  uniform = cs336.compute_entropy(jnp.zeros((1, 1, 4)))
  assert uniform[0, 0] == pytest.approx(np.log(4))


@given(floats(COLUMN), floats(SHAPE, -3, 0), masks(SHAPE), st.sampled_from([1, 4]))
def test_microbatch_step(advantages, logp, mask, steps):
  poisoned = np.where(mask, logp, np.nan)
  loss, _, gradient = cs336.grpo_microbatch_train_step(
    poisoned, mask, steps, "reinforce_with_baseline", advantages=advantages
  )
  lengths = mask.sum(-1, keepdims=True)
  sequences = max(int((lengths > 0).sum()), 1)
  weights = np.where(mask, 1 / np.maximum(lengths, 1) / sequences / steps, 0)
  expected = (weights * -advantages * logp).sum()
  assert loss == pytest.approx(float(expected), rel=1e-4, abs=1e-5)
  np.testing.assert_allclose(gradient, weights * -advantages, rtol=1e-5, atol=1e-7)


def test_gradients_of_microbatches_add_up():
  rng = np.random.default_rng(0)
  logp, old_logp = -rng.random((2, 8, 5)).astype(np.float32)
  mask = np.arange(5) < rng.integers(1, 6, (8, 1))
  advantages = rng.normal(size=(8, 1)).astype(np.float32)

  def step(rows, steps):
    return cs336.grpo_microbatch_train_step(
      logp[rows],
      mask[rows],
      steps,
      "grpo_clip",
      advantages=advantages[rows],
      old_log_probs=old_logp[rows],
      cliprange=0.2,
    )

  loss, metadata, gradient = step(slice(0, 8), 1)
  parts = [step(slice(i, i + 2), 4) for i in range(0, 8, 2)]
  assert sum(float(p[0]) for p in parts) == pytest.approx(float(loss), rel=1e-5)
  np.testing.assert_allclose(np.concatenate([p[2] for p in parts]), gradient, rtol=1e-5)
  assert metadata["clipped"].shape == (8, 5)


@given(floats(SHAPE, -3, 0), masks(SHAPE), st.floats(0.5, 20), st.integers(1, 4))
def test_supervised_step(logp, mask, constant, steps):
  loss, metadata, gradient = cs336.sft_microbatch_train_step(logp, mask, steps, constant)
  sums = cs336.masked_normalize(logp, mask, constant, dim=-1)
  assert loss == pytest.approx(-float(sums.mean()) / steps, rel=1e-4, abs=1e-6)
  np.testing.assert_allclose(gradient, -1.0 * mask / (4 * constant * steps), rtol=1e-5)
  assert metadata["tokens"] == mask.sum()


def test_prompts_and_outputs():
  tokenizer = byte_tokenizer()
  prompts, outputs = ["ab", "c", "defg"], ["xyz", "", "1"]
  batch = cs336.tokenize_prompt_and_output(prompts, outputs, tokenizer)
  assert {name: x.shape for name, x in batch.items()} == dict.fromkeys(batch, (3, 5))
  ids, labels, mask = batch["input_ids"], batch["labels"], batch["response_mask"]
  np.testing.assert_array_equal(ids[:, 1:], labels[:, :-1])
  decoded = [tokenizer.decode(row[at]) for row, at in zip(labels, mask, strict=True)]
  assert decoded == outputs
  text = tokenizer.decode([ids[0, 0], *labels[0]], skip_special_tokens=True)
  assert text == "abxyz"
  for bad in ([], ["ab"]):
    with pytest.raises(ValueError, match=f"{len(bad)} prompts and 3 outputs"):
      cs336.tokenize_prompt_and_output(bad, outputs, tokenizer)


def test_bad_arguments_raise():
  logp = jnp.zeros(SHAPE)
  for loss_type, missing in (
    ("no_baseline", "raw_rewards"),
    ("reinforce_with_baseline", "advantages"),
    ("grpo_clip", "advantages, old_log_probs, cliprange"),
  ):
    with pytest.raises(ValueError, match=f"{loss_type}' requires {missing}"):
      cs336.compute_policy_gradient_loss(logp, loss_type)
  with pytest.raises(ValueError, match="loss_type is 'ppo'; allowed are 'no_baseline'"):
    cs336.compute_policy_gradient_loss(logp, "ppo")
  with pytest.raises(ValueError, match="gradient_accumulation_steps is 0"):
    cs336.grpo_microbatch_train_step(
      logp, logp, 0, "no_baseline", raw_rewards=jnp.zeros(COLUMN)
    )
  with pytest.raises(ValueError, match="gradient_accumulation_steps is 0"):
    cs336.sft_microbatch_train_step(logp, logp, 0)
  with pytest.raises(ValueError, match="max_length is -1"):
    cs336.sft_microbatch_train_step(logp, logp, 1, -1)
  with pytest.raises(ValueError, match="group_size is 4; .* which is 6"):
    cs336.compute_group_normalized_rewards(reward_fn, TEXTS, TEXTS, 4, 0.0, True)
  with pytest.raises(ValueError, match="6 responses and 5 ground truths"):
    cs336.compute_group_normalized_rewards(reward_fn, TEXTS, TEXTS[:5], 3, 0.0, True)
  with pytest.raises(AssertionError):
    cs336.compute_naive_policy_gradient_loss(jnp.zeros(4), logp)


def test_runs_under_jit():
  def step(logp, advantages):
    return cs336.grpo_microbatch_train_step(
      logp, jnp.ones(SHAPE), 1, "reinforce_with_baseline", advantages=advantages
    )

  loss, _, gradient = jax.jit(step)(jnp.full(SHAPE, -1.0), jnp.ones(COLUMN))
  assert loss == pytest.approx(1.0) and gradient.shape == SHAPE
