"""A reward model from preferences, and a policy that learns from it."""

import dataclasses

import chex
import numpy as np
import pytest

from pgax.data import byte_tokenizer
from pgax.data.preferences import Preference, Preferences
from pgax.models.heads import headless
from pgax.runs.json_lines import read_lines
from pgax.tasks import addition_preferences
from pgax.training import (
  CheckpointConfig,
  PreferenceConfig,
  RewardModelConfig,
  UserError,
  train,
  train_on_preferences,
)
from tests import tiny

CONFIG = PreferenceConfig(
  name="pairs",
  data=addition_preferences(digits=2),
  model=dataclasses.replace(tiny.CONFIG, scale_embeddings=False),
  optimizer=tiny.OptimizerConfig(learning_rate=5e-3, warmup_steps=5),
  steps=60,
  batch_size=16,
  max_prompt_tokens=7,
  max_completion_tokens=25,
  eval_every=30,
  eval_pairs=200,
  checkpoints=CheckpointConfig(every=20),
)


def run(workdir, **changes):
  config = dataclasses.replace(CONFIG, **changes)
  return train_on_preferences(config, byte_tokenizer(), workdir, {}, progress=False)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
  workdir = tmp_path_factory.mktemp("pairs")
  return run(workdir), workdir


def test_held_out_pairs_are_told_apart(trained):
  result, workdir = trained
  assert result.finished and result.accuracy > 0.95
  rows = read_lines(workdir / "metrics.jsonl")
  assert [row["step"] for row in rows] == list(range(1, 61))
  assert rows[0]["loss"] == pytest.approx(np.log(2)) and rows[0]["margin"] == 0
  assert rows[-1]["loss"] < 0.3
  assert [row["step"] for row in rows if "eval/accuracy" in row] == [30, 60]
  assert result.state.params["params"]["bias"] == 0  # pairs do not tell of it


def test_stopped_and_given_again(trained, tmp_path):
  run(tmp_path, steps=25)
  assert not (tmp_path / "metrics.jsonl").read_text().count('"step": 26')
  again = run(tmp_path)
  chex.assert_trees_all_equal(again.state, trained[0].state)
  assert run(tmp_path).accuracy == again.accuracy  # done already
  with pytest.raises(UserError, match="steps is 5, but the run in .* has done 60 steps"):
    run(tmp_path, steps=5)


def test_a_policy_learns_from_it(trained, tmp_path):
  path = str(trained[1] / "export")
  config = tiny.run_config(
    reward_model=RewardModelConfig(path, weight=0.5, truncation_reward=-3.0), steps=2
  )
  result = train(config, byte_tokenizer(), tmp_path, {}, progress=False)
  assert result.finished
  for row in read_lines(tmp_path / "metrics.jsonl")[1:]:
    cut = row["length/truncated"]
    model = (1 - cut) * (row["reward/model"] or 0) - 3 * cut
    whole = row["reward/function"] + 0.5 * model
    assert row["reward/mean"] == pytest.approx(whole, abs=1e-4)
    assert row["reward/unscorable"] == 0


PAIR = Preference("1", "2", "3")


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"model": tiny.CONFIG}, "no supported architecture .* but scale_embeddings is True"),
    ({"max_completion_tokens": 9}, r"has \d+ tokens; max_completion_tokens allows 9"),
    (
      {"model": dataclasses.replace(CONFIG.model, vocab_size=60)},
      r"a pair has token \d+; model.vocab_size is 60",
    ),
    ({"data": Preferences([PAIR], [Preference("1" * 9, "2", "3")])}, "max_prompt_tokens"),
    ({"model_path": "nowhere"}, "nowhere"),
  ],
)
def test_what_cannot_be_trained_is_rejected(tmp_path, changes, message):
  with pytest.raises(UserError, match=message):
    run(tmp_path / "run", **changes)
  assert not (tmp_path / "run").exists()


def test_settings_out_of_range():
  with pytest.raises(ValueError, match="eval_pairs is 0; it must be at least 1"):
    dataclasses.replace(CONFIG, eval_pairs=0)
  assert headless(CONFIG.model) == CONFIG.model  # tied here, so nothing is left out
