"""Scoring on the host: names, unscorable completions, metrics and samples."""

import dataclasses

import numpy as np
import pytest

from pgax.data import CollatePrompts, byte_tokenizer
from pgax.data.chat import Chat
from pgax.rewards import final_answer
from pgax.rewards.pool import InProcess
from pgax.rollout.metrics import Completions, rollout_metrics
from pgax.rollout.samples import make_samples
from pgax.rollout.scoring import score_rollout
from pgax.runs.json_lines import write_lines
from pgax.runs.loggers import read_samples
from pgax.types import Example
from tests import tiny

TOKENIZER = byte_tokenizer()
EXAMPLES = [Example(f"{i}+1=", str(i + 1), metadata={"i": i}) for i in range(4)]
COLLATE = CollatePrompts(TOKENIZER, 5)
PROMPTS, ROLLOUT = COLLATE(EXAMPLES), tiny.rollout()


def test_reward_function_gets_each_completion_with_its_problem():
  seen = []

  def reward(prompt, completion, ground_truth, metadata):
    seen.append((prompt, completion, metadata))
    return {"reward": len(seen), "half": len(seen) / 2}

  results = score_rollout(InProcess(reward), TOKENIZER, PROMPTS, ROLLOUT)
  np.testing.assert_array_equal(results.rewards, np.arange(1, 17).reshape(4, 4))
  assert results.rewards.dtype == np.float32
  np.testing.assert_array_equal(results.scores["half"], results.rewards / 2)
  assert rollout_metrics(Completions.of(ROLLOUT), results)["reward/half"] == 4.25
  assert [p for p, _, _ in seen] == [e.prompt for e in EXAMPLES for _ in range(4)]
  assert [m["i"] for _, _, m in seen] == [i for i in range(4) for _ in range(4)]
  assert [t for _, t, _ in seen] == [text for group in results.texts for text in group]
  for (n, k), text in np.ndenumerate(np.array(results.texts, dtype=object)):
    ids = np.asarray(ROLLOUT.tokens)[n, k][np.asarray(ROLLOUT.action_mask)[n, k]]
    assert text == TOKENIZER.decode(ids, skip_special_tokens=True)


def test_what_is_not_finite_is_unscorable_and_not_zero():
  values = iter(
    [1.0, np.nan, 0.0, np.inf] + [0.5] * 4 + [np.nan] * 4 + [0.0, 0.0, 0.0, 1.0]
  )
  results = score_rollout(
    InProcess(lambda *_: {"reward": next(values)}), TOKENIZER, PROMPTS, ROLLOUT
  )
  assert results.valid.sum() == 10 and np.all(np.isfinite(results.rewards))
  metrics = rollout_metrics(Completions.of(ROLLOUT), results)
  assert metrics["reward/mean"] == pytest.approx(4 / 10)
  assert metrics["reward/unscorable"] == pytest.approx(6 / 16)
  assert metrics["groups/zero_variance"] == pytest.approx(
    2 / 4
  )  # all equal, all unscorable
  assert metrics["length/mean"] == pytest.approx(
    np.asarray(ROLLOUT.action_mask).sum(-1).mean()
  )
  assert metrics["tokens/generated"] == np.asarray(ROLLOUT.action_mask).sum()
  assert metrics["length/truncated"] == pytest.approx(
    1 - np.asarray(ROLLOUT.finished).mean()
  )


def test_reward_must_be_among_the_scores():
  with pytest.raises(
    ValueError, match=r"returned the scores \['accuracy'\]; 'reward' must"
  ):
    score_rollout(InProcess(lambda *_: {"accuracy": 1.0}), TOKENIZER, PROMPTS, ROLLOUT)


def test_names_of_statistics_are_reserved():
  with pytest.raises(
    ValueError, match="a score named 'std'; the names mean, std, unscorable"
  ):
    score_rollout(
      InProcess(lambda *_: {"reward": 1.0, "std": 1.0}), TOKENIZER, PROMPTS, ROLLOUT
    )


def test_nothing_scorable_has_no_mean():
  results = score_rollout(
    InProcess(lambda *_: {"reward": np.nan}), TOKENIZER, PROMPTS, ROLLOUT
  )
  metrics = rollout_metrics(Completions.of(ROLLOUT), results)
  assert np.isnan(metrics["reward/mean"]) and metrics["reward/unscorable"] == 1


def test_samples_of_a_step_that_is_not_finite_can_be_written(tmp_path):
  results = score_rollout(InProcess(final_answer), TOKENIZER, PROMPTS, ROLLOUT)
  rollout = ROLLOUT.replace(logp=ROLLOUT.logp.at[0].set(np.nan))
  samples = make_samples(TOKENIZER, PROMPTS, rollout, results, ROLLOUT.logp / 0.0)
  rows = [{"step": 1, "split": "train"} | dataclasses.asdict(x) for x in samples]
  write_lines(tmp_path / "samples.jsonl", rows)
  assert read_samples(tmp_path) == rows
  assert {x for row in rows for x in row["advantages"]} == {None}
  assert {x is None for row in rows[:4] for x in row["logp"]} == {True}


def test_samples_are_aligned():
  results = score_rollout(InProcess(final_answer), TOKENIZER, PROMPTS, ROLLOUT)
  samples = make_samples(TOKENIZER, PROMPTS, ROLLOUT, results, ROLLOUT.logp * 2, limit=6)
  assert len(samples) == 6
  for index, sample in enumerate(samples):
    n, k = divmod(index, 4)
    real = np.asarray(ROLLOUT.action_mask)[n, k]
    assert sample.prompt == EXAMPLES[n].prompt and len(sample.tokens) == real.sum()
    np.testing.assert_allclose(sample.logp, ROLLOUT.logp[n, k][real], atol=1e-4)
    np.testing.assert_allclose(sample.advantages, 2 * ROLLOUT.logp[n, k][real], atol=1e-4)


def test_samples_show_what_the_policy_read():
  tokenizer = byte_tokenizer()
  tokenizer.chat_template = (
    "{% for m in messages %}{{ bos_token + m['role'] + ' ' + m['content'] }}{% endfor %}"
    "{{ eos_token + 'assistant ' }}"
  )
  prompts = CollatePrompts(tokenizer, 40, Chat("Add."))(EXAMPLES)
  results = score_rollout(InProcess(final_answer), tokenizer, prompts, ROLLOUT)
  sample = make_samples(tokenizer, prompts, ROLLOUT, results, limit=1)[0]
  assert sample.prompt == "0+1="
  assert sample.rendered_prompt == "<bos>system Add.<bos>user 0+1=<eos>assistant "
  plain = make_samples(tokenizer, PROMPTS, ROLLOUT, results, limit=1)[0]
  assert plain.rendered_prompt == "<bos>0+1="
