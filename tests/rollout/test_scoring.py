"""Scoring on the host: names, unscorable completions, and the numbers told of them."""

import numpy as np
import pytest

from pgax.data import CollatePrompts, byte_tokenizer
from pgax.rewards import final_answer
from pgax.rewards.pool import InProcess
from pgax.rollout.samples import make_samples
from pgax.rollout.scoring import rollout_metrics, score
from pgax.types import Example
from tests import tiny

TOKENIZER = byte_tokenizer()
EXAMPLES = [Example(f"{i}+1=", str(i + 1), metadata={"i": i}) for i in range(4)]
COLLATE = CollatePrompts(TOKENIZER, 5)
PROMPTS, ROLLOUT = COLLATE(EXAMPLES), tiny.rollout()


def test_reward_function_sees_its_own_completion():
  seen = []

  def reward(prompt, completion, ground_truth, metadata):
    seen.append((prompt, completion, metadata))
    return {"reward": len(seen), "half": len(seen) / 2}

  scores = score(InProcess(reward), TOKENIZER, PROMPTS, ROLLOUT)
  np.testing.assert_array_equal(scores.rewards, np.arange(1, 17).reshape(4, 4))
  assert scores.rewards.dtype == np.float32
  np.testing.assert_array_equal(scores.parts["half"], scores.rewards / 2)
  assert rollout_metrics(ROLLOUT, scores)["reward/half"] == 4.25
  assert [p for p, _, _ in seen] == [e.prompt for e in EXAMPLES for _ in range(4)]
  assert [m["i"] for _, _, m in seen] == [i for i in range(4) for _ in range(4)]
  assert [t for _, t, _ in seen] == [text for group in scores.texts for text in group]
  for (n, k), text in np.ndenumerate(np.array(scores.texts, dtype=object)):
    ids = np.asarray(ROLLOUT.tokens)[n, k][np.asarray(ROLLOUT.mask)[n, k]]
    assert text == TOKENIZER.decode(ids, skip_special_tokens=True)


def test_what_is_not_finite_is_unscorable_and_not_zero():
  values = iter(
    [1.0, np.nan, 0.0, np.inf] + [0.5] * 4 + [np.nan] * 4 + [0.0, 0.0, 0.0, 1.0]
  )
  scores = score(
    InProcess(lambda *_: {"reward": next(values)}), TOKENIZER, PROMPTS, ROLLOUT
  )
  assert scores.valid.sum() == 10 and np.all(np.isfinite(scores.rewards))
  told = rollout_metrics(ROLLOUT, scores)
  assert told["reward/mean"] == pytest.approx(4 / 10)
  assert told["reward/unscorable"] == pytest.approx(6 / 16)
  assert told["groups/zero_variance"] == pytest.approx(2 / 4)  # all equal, all unscorable
  assert told["length/mean"] == pytest.approx(np.asarray(ROLLOUT.mask).sum(-1).mean())
  assert told["tokens/generated"] == np.asarray(ROLLOUT.mask).sum()
  assert told["length/truncated"] == pytest.approx(1 - np.asarray(ROLLOUT.finished).mean())


def test_reward_must_be_among_the_scores():
  with pytest.raises(
    ValueError, match=r"returned the scores \['accuracy'\]; 'reward' must"
  ):
    score(InProcess(lambda *_: {"accuracy": 1.0}), TOKENIZER, PROMPTS, ROLLOUT)


def test_names_of_statistics_are_taken():
  with pytest.raises(
    ValueError, match="a score named 'std'; the names mean, std, unscorable"
  ):
    score(InProcess(lambda *_: {"reward": 1.0, "std": 1.0}), TOKENIZER, PROMPTS, ROLLOUT)


def test_nothing_scorable_has_no_mean():
  scores = score(InProcess(lambda *_: {"reward": np.nan}), TOKENIZER, PROMPTS, ROLLOUT)
  told = rollout_metrics(ROLLOUT, scores)
  assert np.isnan(told["reward/mean"]) and told["reward/unscorable"] == 1


def test_samples_are_aligned():
  scores = score(InProcess(final_answer), TOKENIZER, PROMPTS, ROLLOUT)
  samples = make_samples(TOKENIZER, PROMPTS, ROLLOUT, scores, ROLLOUT.logp * 2, limit=6)
  assert len(samples) == 6
  for index, sample in enumerate(samples):
    n, k = divmod(index, 4)
    real = np.asarray(ROLLOUT.mask)[n, k]
    assert sample.prompt == EXAMPLES[n].prompt and len(sample.tokens) == real.sum()
    np.testing.assert_allclose(sample.logp, ROLLOUT.logp[n, k][real], atol=1e-4)
    np.testing.assert_allclose(sample.advantages, 2 * ROLLOUT.logp[n, k][real], atol=1e-4)
