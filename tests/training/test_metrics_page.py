"""The table of metrics has every key that runs write."""

import dataclasses
import re
from pathlib import Path

import jax
import pytest

from pgax import algorithms, kl
from pgax.algorithms import EntropyBonus, parts
from pgax.data import byte_tokenizer, mixture
from pgax.learner import LearnerConfig
from pgax.learner.policy_step import policy_step
from pgax.runs.json_lines import read_lines
from pgax.tasks import addition
from pgax.training import EvaluationConfig, train
from tests import tiny

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
ROWS = [
  [cell.strip() for cell in line.strip("|").split("|")]
  for line in PAGE.read_text().splitlines()
  if line.startswith("| `")
]
KEYS = [key for row in ROWS for key in re.findall(r"`([^`]+)`", row[0])]
# A name in capitals stands for any name.
PATTERNS = [re.compile(re.sub("[A-Z]+", ".+", re.escape(key)) + "$") for key in KEYS]


def missing(names):
  return {name for name in names if not any(x.match(name) for x in PATTERNS)}


def test_rows_say_what_a_key_means_and_in_which_unit():
  assert len(KEYS) == len(set(KEYS)) > 60
  for key, meaning, unit, _ in ROWS:
    assert (meaning and unit) or key == "`step`", key


CORRECTED = dataclasses.replace(
  algorithms.grpo(), sampler_correction=parts.TruncatedWeights()
)
EVERYTHING = dataclasses.replace(
  algorithms.vapo(pretraining=1, epochs=2, minibatches=2),
  kl=algorithms.KLPenalty(kl.k1, kl.FixedController(0.1), "reward"),
  entropy=EntropyBonus(kl.FixedController(0.1)),
  token_filter=parts.TopEntropy(0.5),
  target_kl=1.0,
)


@pytest.mark.parametrize("algorithm", [CORRECTED, EVERYTHING])
def test_an_update_has_no_other_key(algorithm):
  learner = tiny.learner(algorithm, config=LearnerConfig(keep_reference=True))
  state = jax.eval_shape(lambda: tiny.state(algorithm, config=learner.config))
  _, update = jax.eval_shape(
    lambda *x: policy_step(learner, *x), state, tiny.rollout(), tiny.feedback()
  )
  assert not missing(update.metrics)
  assert {"kl/ref_completion", "kl/old_completion"} <= set(update.metrics)


def test_a_run_has_no_other_key(tmp_path):
  tasks = {"a": addition(digits=1), "b": addition(digits=1)}
  algorithm = dataclasses.replace(
    algorithms.grpo(), dynamic_sampling=algorithms.DynamicSampling(2)
  )
  config = tiny.run_config(
    task=mixture(tasks, {"a": 0.5, "b": 0.5}),
    algorithm=algorithm,
    steps=2,
    evaluation=EvaluationConfig(every=2, problems=4, samples=2, temperature=1.0),
    mesh=dataclasses.replace(tiny.run_config().mesh, peak_flops=1e12),
  )
  train(config, byte_tokenizer(), tmp_path, progress=False)
  rows = read_lines(tmp_path / "metrics.jsonl")
  rows += read_lines(tmp_path / "supervised.jsonl")
  written = {name for row in rows for name in row}
  assert not missing(written)
  assert "reward/task/a" in written
  last = rows[2]
  assert 0 < last["time/mfu_train"] < 1 and 0 < last["time/mfu_rollout"] < 1
  assert last["time/total"] > rows[1]["time/total"] > rows[1]["time/train"]
  seconds = sum(last[f"time/{name}"] for name in ("rollout", "reward", "train"))
  speed = last["tokens/generated"] / seconds
  assert last["time/tokens_per_second"] == pytest.approx(speed)
