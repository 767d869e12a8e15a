"""The interface of CS336's assignment 5 agrees with NumPy, and rejects bad arguments."""

from types import SimpleNamespace

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
RIGHT = {"format_reward": 1.0, "answer_reward": 1.0, "reward": 1.0}
WRONG = {"format_reward": 1.0, "answer_reward": 0.0, "reward": 0.0}
UNFORMATTED = {"format_reward": 0.0, "answer_reward": 0.0, "reward": 0.0}


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


@given(
  floats(COLUMN), floats(SHAPE, -3, 0), floats(SHAPE, -3, 0), st.sampled_from([0.2, 1, 10])
)
def test_losses(advantages, logp, old_logp, cliprange):
  naive = cs336.compute_naive_policy_gradient_loss(advantages, logp)
  np.testing.assert_allclose(naive, -advantages * logp, rtol=1e-5, atol=1e-6)
  loss, metadata = cs336.compute_grpo_clip_loss(advantages, logp, old_logp, cliprange)
  ratio = np.exp(logp.astype(np.float64) - old_logp)
  bounded = np.clip(ratio, 1 - cliprange, 1 + cliprange)
  expected = -np.minimum(ratio * advantages, bounded * advantages)
  np.testing.assert_allclose(loss, expected, rtol=1e-4, atol=1e-5)
  assert metadata["clipped"].shape == SHAPE
  old = {"advantages": advantages, "old_log_probs": old_logp}
  for loss_type, options, expected in (
    ("no_baseline", {"raw_rewards": advantages}, naive),
    ("reinforce_with_baseline", {"advantages": advantages}, naive),
    ("grpo_clip", old | {"cliprange": cliprange}, loss),
    ("grpo_no_clip", old, -ratio * advantages),
  ):
    selected, _ = cs336.compute_policy_gradient_loss(logp, loss_type, **options)
    np.testing.assert_allclose(selected, expected, rtol=1e-4, atol=1e-5)


def test_lists_are_arrays():
  logp, column = [[-1.0, -2.0], [-0.5, -3.0]], [[1.0], [-1.0]]
  loss, _ = cs336.compute_grpo_clip_loss(column, logp, logp, 0.2)
  np.testing.assert_allclose(loss, [[-1, -1], [1, 1]])
  options = {"advantages": column, "old_log_probs": logp, "cliprange": 0.2}
  mask = [[1, 0], [1, 1]]
  value, _, _ = cs336.grpo_microbatch_train_step(logp, mask, 1, "grpo_clip", **options)
  assert value == 0


def test_the_clip_of_masked_tokens_is_not_reported():
  mask = np.array([[1, 0], [0, 1]])
  old = np.array([[-1.0, -9.0], [-9.0, -1.0]])  # no token has changed
  _, metadata, _ = cs336.grpo_microbatch_train_step(
    old, mask, 1, "grpo_clip", advantages=np.ones((2, 1)), old_log_probs=old, cliprange=0.2
  )
  assert not metadata["clipped"].any()


@pytest.mark.parametrize("bad", [0, -1, float("nan")])
def test_divisors_are_positive(bad):
  logp, mask = np.zeros((2, 2)), np.ones((2, 2))
  for arguments in ((bad, 1.0), (1, bad)):
    with pytest.raises(ValueError, match=f"{bad}; it must be"):
      cs336.sft_microbatch_train_step(logp, mask, *arguments)


@given(floats(SHAPE), masks(SHAPE))
def test_masked_reductions(x, mask):
  for dim in (0, 1, -1, None):
    total, count = (x * mask).sum(dim), mask.sum(dim)
    with np.errstate(invalid="ignore", divide="ignore"):
      mean = total / count  # nan where nothing is unmasked, as in the assignment
    np.testing.assert_allclose(cs336.masked_mean(x, mask, dim), mean, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
      cs336.masked_normalize(x, mask, 8.0, dim), total / 8, rtol=1e-4, atol=1e-5
    )


def test_entropy():
  logits = np.random.default_rng(0).normal(size=(2, 3, 4))
  p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
  np.testing.assert_allclose(
    cs336.compute_entropy(logits), -(p * np.log(p)).sum(-1), rtol=1e-5
  )
  uniform = cs336.compute_entropy(jnp.zeros((1, 1, 4)))
  assert uniform[0, 0] == pytest.approx(np.log(4))


def test_log_probs_of_responses():
  rng = np.random.default_rng(0)
  table = rng.normal(size=(7, 7)).astype(np.float32)  # logits of the token after a token
  ids, labels = rng.integers(0, 7, (2, 3, 5))
  p = np.exp(table) / np.exp(table).sum(-1, keepdims=True)
  outputs = (
    lambda x: jnp.asarray(table)[x],
    lambda x: SimpleNamespace(logits=table[x]),
  )
  for model in outputs:
    scores = cs336.get_response_log_probs(model, ids, labels, return_token_entropy=True)
    np.testing.assert_allclose(
      scores["log_probs"], np.log(p)[ids, labels], rtol=1e-5, atol=1e-6
    )
    np.testing.assert_allclose(
      scores["token_entropy"], -(p * np.log(p)).sum(-1)[ids], rtol=1e-5
    )
  assert cs336.get_response_log_probs(model, ids, labels).keys() == {"log_probs"}


@given(floats(COLUMN), floats(SHAPE, -3, 0), masks(SHAPE), st.floats(0.5, 20))
def test_constant_normalize_factor(advantages, logp, mask, constant):
  loss, _, gradient = cs336.grpo_microbatch_train_step(
    logp,
    mask,
    2,
    "reinforce_with_baseline",
    advantages=advantages,
    constant_normalize_factor=constant,
  )
  weights = mask / (len(mask) * constant * 2)
  expected = float((weights * -advantages * logp).sum())
  assert loss == pytest.approx(expected, rel=1e-4, abs=1e-5)
  np.testing.assert_allclose(gradient, weights * -advantages, rtol=1e-5, atol=1e-7)


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
  assert (ids[1, 3:] == tokenizer.pad_token_id).all()
  tokenizer.pad_token_id = 7
  batch = cs336.tokenize_prompt_and_output(prompts, outputs, tokenizer)
  assert (batch["input_ids"][1, 2:] == 7).all() and (batch["labels"][1, 1:] == 7).all()
  tokenizer.pad_token = None
  batch = cs336.tokenize_prompt_and_output(prompts, outputs, tokenizer)
  assert (batch["labels"][1, 1:] == tokenizer.eos_token_id).all()
  for bad in ([], ["ab"]):
    with pytest.raises(ValueError, match=f"{len(bad)} prompts and 3 outputs"):
      cs336.tokenize_prompt_and_output(bad, outputs, tokenizer)


@pytest.mark.parametrize(
  ("response", "truth", "scores"),
  [
    ("so</think> <answer> 1/2 </answer>", "0.5", RIGHT),
    (r"so</think> <answer>\boxed{\frac{1}{2}}</answer>", 0.5, RIGHT),
    (r"so</think> <answer>2\sqrt{3}</answer>", r"\boxed{\sqrt{12}}", RIGHT),
    ("so</think> <answer>2</answer>", ["1", "2"], RIGHT),
    ("so</think> <answer>2</answer>", 3, WRONG),
    (r"so</think> <answer>\boxed{2</answer>", "2", WRONG),
    ("so</think><answer>2</answer>", "2", UNFORMATTED),
    ("2", "2", UNFORMATTED),
  ],
)
def test_r1_zero_reward(response, truth, scores):
  assert cs336.r1_zero_reward_fn(response, truth) == scores


@pytest.mark.parametrize(
  ("response", "truth", "scores"),
  [
    (r"so \boxed{2}, or \boxed{1/2}", "0.5", RIGHT),
    (r"\boxed{42}", 42, RIGHT),
    (r"\boxed{42}", ["7", r"\boxed{42}"], RIGHT),
    (r"\boxed{42}", "7", WRONG),
    (r"\boxed{}", "7", WRONG),
    (r"\boxed{42", "42", UNFORMATTED),
    ("42", "42", UNFORMATTED),
  ],
)
def test_question_only_reward(response, truth, scores):
  assert cs336.question_only_reward_fn(response, truth) == scores


def test_bad_arguments_raise():
  logp = jnp.zeros(SHAPE)
  for loss_type, missing in (
    ("no_baseline", "raw_rewards"),
    ("reinforce_with_baseline", "advantages"),
    ("grpo_clip", "advantages, old_log_probs, cliprange"),
    ("grpo_no_clip", "advantages, old_log_probs"),
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
  with pytest.raises(ValueError, match="ground_truth is empty"):
    cs336.r1_zero_reward_fn("1", [])
  with pytest.raises(AssertionError):
    cs336.compute_naive_policy_gradient_loss(jnp.zeros(4), logp)


def test_runs_under_jit():
  def step(logp, advantages):
    return cs336.grpo_microbatch_train_step(
      logp, jnp.ones(SHAPE), 1, "reinforce_with_baseline", advantages=advantages
    )

  loss, _, gradient = jax.jit(step)(jnp.full(SHAPE, -1.0), jnp.ones(COLUMN))
  assert loss == pytest.approx(1.0) and gradient.shape == SHAPE
