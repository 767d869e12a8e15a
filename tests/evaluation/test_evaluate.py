"""Evaluations: which completions count, the numbers, and that they are reproducible."""

import math

import jax
import numpy as np
import pytest

from pgax.data import CollatePrompts, byte_tokenizer
from pgax.evaluation.config import EvaluationConfig
from pgax.evaluation.evaluate import (
  Evaluation,
  evaluate,
  evaluation_key,
  evaluation_metrics,
)
from pgax.ops.evaluation import Estimate
from pgax.rewards.pool import InProcess
from pgax.types import Example
from tests import tiny

COLLATE = CollatePrompts(byte_tokenizer(), 5)
PROBLEMS = [Example(f"{i}+1=", str(i + 1)) for i in range(7)]
KEY = jax.random.key(3)
SAMPLER = tiny.sampler(max_completion_tokens=4)


def call(reward, batch_size=7, problems=PROBLEMS, key=KEY, **settings):
  return evaluate(
    SAMPLER,
    tiny.params(),
    problems,
    COLLATE,
    InProcess(reward),
    batch_size,
    key,
    **settings,
  )


def completions(result):
  return [sample.completion for sample in result.samples]


def test_every_problem_counts_once():
  seen = []

  def reward(prompt, completion, ground_truth, metadata):
    seen.append(prompt)
    if prompt == "6+1=":
      return {"reward": math.nan, "part": 100.0}  # of no part: it was not scored
    return {"reward": float(prompt < "2"), "part": 2.0}

  result = call(reward, batch_size=3)
  assert seen == [e.prompt for e in PROBLEMS]  # fillers of the last batch are not scored
  metrics = result.estimates
  assert result.accuracy == metrics["reward/mean"].mean == pytest.approx(2 / 6)
  assert metrics["accuracy"].low < 2 / 6 < metrics["accuracy"].high
  assert result.problems == 7 and metrics["unscorable"].mean == pytest.approx(1 / 7)
  assert metrics["reward/part"] == (2.0, 2.0, 2.0)
  assert len(result.samples) == 7 and result.samples[6].reward is None
  # One greedy completion: neither the batch nor the key plays a part in what is drawn.
  again = call(reward, batch_size=7, key=jax.random.key(5))
  assert completions(again) == completions(result)
  assert {x: y.mean for x, y in again.estimates.items()} == {
    x: y.mean for x, y in metrics.items()
  }
  assert not [name for name in metrics if name.startswith("majority")]


def test_accuracy_is_the_score_of_that_name():
  result = call(lambda *_: {"reward": 1.5, "accuracy": 0.25})
  metrics = result.estimates
  assert result.accuracy == 0.25 and metrics["reward/mean"].mean == 1.5
  # A quarter right is not right.
  assert metrics["pass@1"].mean == 0.0 and metrics["reward/accuracy"].mean == 0.25
  assert not any(sample.right for sample in result.samples)


def test_without_that_score_the_reward_tells_who_is_right():
  result = call(lambda prompt, *_: {"reward": 2.1 if prompt < "2" else -0.5})
  assert result.accuracy == result.estimates["pass@1"].mean == pytest.approx(2 / 7)
  assert result.estimates["reward/mean"].mean == pytest.approx((2 * 2.1 - 5 * 0.5) / 7)
  assert [sample.right for sample in result.samples] == [x.prompt < "2" for x in PROBLEMS]


# Of 7 problems, 6 completions each: what happens to each is written down by hand, and the
# numbers are computed by the definitions.
RIGHT = np.array(
  [[1, 1, 1, 0, 0, 0], [0] * 6, [1] * 6, [0, 1] * 3, [1, 0, 0, 0, 0, 0]] + [[1] * 6] * 2,
  bool,
)
VALID = np.ones_like(RIGHT)
VALID[4, 3:] = VALID[5, 1:] = VALID[6] = False
ANSWERS = np.where(RIGHT, "7", "8").astype(object)
ANSWERS[0, 3:] = ["9", "8", "9.0"]
ANSWERS[3, 0] = None


class Script:
  """A reward and an answer extractor that follow the hand-written table."""

  def __init__(self):
    self.scored = self.read = 0

  def reward(self, prompt, completion, ground_truth, metadata):
    index = divmod(self.scored, 6)
    self.scored += 1
    assert prompt == PROBLEMS[index[0]].prompt
    # Of weight 2, so that the reward does not show which completions are right.
    scores = {"reward": 2.0 * RIGHT[index], "accuracy": float(RIGHT[index])}
    scores["part"] = 3.0 if index[1] else math.inf  # what is not finite is left out
    return scores if VALID[index] else {"reward": math.nan}

  def answer(self, text):
    # A batch is scored as a whole before any of its answers is read.
    index = divmod(self.read, 6)
    self.read += 1
    return ANSWERS[index]


def test_the_numbers_of_several_samples():
  script = Script()
  result = call(
    script.reward,
    batch_size=13,
    samples=6,
    temperature=1.0,
    extract_answer=script.answer,
    keep=9,
  )
  assert script.scored == script.read == 42 and len(result.samples) == 9
  metrics = {name: x.mean for name, x in result.estimates.items()}
  ks = (1, 2, 4, 6)
  assert list(metrics) == [
    "accuracy",
    *(f"pass@{k}" for k in ks),
    *(f"majority@{k}" for k in ks[1:]),
    "length",
    "truncated",
    "unscorable",
    "reward/mean",
    "reward/accuracy",
    "reward/part",
  ]
  means = [1 / 2, 0, 1, 1 / 2, 1 / 3, 1]  # the seventh problem could not be scored
  assert metrics["accuracy"] == metrics["pass@1"] == pytest.approx(np.mean(means))
  assert metrics["reward/mean"] == pytest.approx(2 * np.mean(means))
  assert metrics["reward/part"] == 3

  def choose(n, c, k):
    return 1 - math.comb(n - c, k) / math.comb(n, k)

  counts = [(6, 3), (6, 0), (6, 6), (6, 3), (3, 1), (1, 1)]
  for k in ks:
    expected = np.mean([choose(n, c, k) for n, c in counts if n >= k])
    assert metrics[f"pass@{k}"] == pytest.approx(expected, rel=1e-5)
  # In blocks of 2 the first problem has 77, 79, 89; the fourth -7, 87, 87; the fifth 78.
  pairs = [(1 + 1 / 2 + 0) / 3, 0, 1, (1 + 1 / 2 + 1 / 2) / 3, 1 / 2]
  assert metrics["majority@2"] == pytest.approx(np.mean(pairs))
  # In blocks of 4: 7779 and -787; of all 6: 777989 and -78787.
  assert metrics["majority@4"] == metrics["majority@6"] == pytest.approx(3 / 4)
  assert metrics["unscorable"] == pytest.approx((3 + 5 + 6) / 42)


def test_draws_depend_on_key_problem_and_number_alone():
  sampled = {"samples": 3, "temperature": 1.0, "keep": 21}
  result = call(tiny.any_reward, batch_size=21, **sampled)
  few = call(tiny.any_reward, batch_size=6, **sampled)
  assert completions(few) == completions(result) and few.estimates == result.estimates
  first = call(tiny.any_reward, batch_size=6, problems=PROBLEMS[:2], **sampled)
  assert completions(first) == completions(result)[:6]
  other = call(tiny.any_reward, batch_size=6, key=jax.random.key(4), **sampled)
  assert all(x != y for x, y in zip(completions(other), completions(result), strict=True))
  same = call(tiny.any_reward, problems=PROBLEMS[:1] * 7, batch_size=6, **sampled)
  assert len(set(completions(same))) == len(set(completions(result))) == 21

  # Length and truncation are those of the completions.
  lengths = [len(sample.tokens) for sample in result.samples]
  assert result.estimates["length"].mean == pytest.approx(np.mean(lengths))
  cut = [not sample.finished for sample in result.samples]
  assert result.estimates["truncated"].mean == pytest.approx(np.mean(cut))
  assert "majority@2" not in result.estimates  # nobody reads answers


def test_a_score_that_some_batches_lack():
  def reward(prompt, completion, ground_truth, metadata):
    odd = {"odd": 3.0, "accuracy": 1.0} if prompt[0] in "13" else {}
    return {"reward": 0.5, **odd}

  metrics = call(reward, batch_size=1).estimates
  assert metrics["reward/odd"].mean == 3.0 and metrics["accuracy"].mean == 1.0


@pytest.mark.parametrize(
  ("settings", "message"),
  [
    ({"samples": 0}, "samples is 0; it must be at least 1"),
    ({"temperature": -1.0}, "temperature is -1.0; it must be 0, or from"),
    ({"temperature": math.inf}, "temperature is inf; it must be 0, or from"),
    ({"samples": 2}, "samples is 2 and temperature is 0.0; all greedy completions"),
  ],
)
def test_what_can_not_be_drawn(settings, message):
  with pytest.raises(ValueError, match=message):
    call(tiny.any_reward, **settings)
  with pytest.raises(ValueError, match=f"evaluation.{message.partition(' and ')[0]}"):
    EvaluationConfig(**settings)


def test_key_is_of_the_seed_and_not_of_the_run():
  assert evaluation_key(1) == evaluation_key(1) != evaluation_key(2)
  ours = jax.random.key_data(evaluation_key(1))
  run = jax.random.key_data(jax.random.split(jax.random.key(1), 3))
  assert not (ours == run).all(-1).any()


def test_names_of_metrics():
  names = ("accuracy", "pass@1", "length", "reward/mean", "reward/format")
  estimates = {x: Estimate(i + 1.0, float(i), i + 3.0) for i, x in enumerate(names)}
  assert evaluation_metrics(Evaluation(estimates, 3, [])) == {
    "eval/accuracy": 1.0,
    "eval/accuracy_low": 0.0,
    "eval/accuracy_high": 3.0,
    "eval/pass@1": 2.0,
    "eval/length": 3.0,
    "eval/reward/mean": 4.0,
    "eval/reward/format": 5.0,
  }
