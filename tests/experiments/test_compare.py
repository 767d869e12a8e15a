"""The comparison: one warm start, runs that continue, and a table of the results."""

import pytest

from experiments.compare import compare, read_preset_config, summary, table
from pgax.errors import UserError
from pgax.runs.json_lines import read_lines
from pgax.training.run import Run
from pgax.training.stages import Reinforcement, Supervised


def small(name):
  """A preset's config at the size of the tests."""
  config = read_preset_config(name)
  config.task.digits, config.steps = 1, 3
  config.evaluation.problems = 6
  model, sampling, warm = config.model, config.sampling, config.supervised
  model.embed_dim, model.num_layers, model.mlp_dim = 32, 2, 48
  model.num_heads, model.num_kv_heads, model.head_dim = 4, 2, 8
  sampling.prompts_per_step, sampling.group_size = 4, 4
  sampling.max_prompt_tokens, sampling.max_completion_tokens = 5, 16
  warm.steps, warm.batch_size, warm.optimizer.decay_steps = 30, 4, 30
  return config


@pytest.mark.slow
def test_runs_share_their_warm_start_and_go_on(tmp_path, monkeypatch):
  steps, warm = [], []
  supervise, reinforce = Supervised.step, Reinforcement.step

  def dies(self, *args):
    steps.append(seeds[-1])
    if len(steps) == 5:  # in the middle of the second run
      raise MemoryError
    return reinforce(self, *args)

  seeds, start_run = [], Run.start
  monkeypatch.setattr(
    Run, "start", lambda self: (seeds.append(self.config.seed), start_run(self))[1]
  )
  monkeypatch.setattr(Supervised, "step", lambda *a: (warm.append(1), supervise(*a))[1])
  monkeypatch.setattr(Reinforcement, "step", dies)
  with pytest.raises(MemoryError):
    compare(tmp_path, {"grpo": [0, 1]}, read_config=small)
  results = compare(tmp_path, {"grpo": [0, 1]}, read_config=small)
  assert len(warm) == 30  # once, for all
  assert steps == [0, 0, 0, 1, 1, 1, 1, 1]  # its first step is done again, nothing else
  assert [len(rows) for rows in results.values()] == [2]
  assert (tmp_path / "table.md").read_text() == table(results)
  start, other = (
    read_lines(tmp_path / f"grpo-{seed}" / "metrics.jsonl")[0] for seed in (0, 1)
  )
  assert start == other  # the same policy on the same problems
  assert compare(tmp_path, {"grpo": [0, 1]}, read_config=small) == results
  assert len(steps) == 8  # what is done is done


@pytest.mark.slow
def test_presets_of_several_calls_stand_in_one_table(tmp_path):
  compare(tmp_path, {"rloo": [0]}, steps=1, read_config=small)
  results = compare(tmp_path, {"reinforce": [0]}, steps=1, read_config=small)
  assert list(results) == ["reinforce", "rloo"]
  assert len((tmp_path / "table.md").read_text().splitlines()) == 4


def test_a_bad_run_is_rejected_before_the_first_one_starts(tmp_path):
  with pytest.raises(UserError, match="pretraining is 10 and steps is 2"):
    compare(tmp_path, {"grpo": [0], "vapo": [0]}, steps=2, read_config=small)
  assert list(tmp_path.iterdir()) == []


def test_summary_counts_completions_until_the_goal():
  rows = [
    {"step": 0, "eval/accuracy": 0.3},
    {"step": 1, "eval/accuracy": 0.7, "completions/generated": 10, "time/cpu": 1.0},
    {"step": 2, "eval/accuracy": 0.8, "completions/generated": 30, "time/cpu": 3.0},
    {"step": 3, "eval/accuracy": 0.6, "completions/generated": 10, "time/cpu": 2.0},
  ]
  assert summary(rows) == {"accuracy": 0.6, "completions": 40, "cpu": 2.0}
  assert summary(rows[:2]) == {"accuracy": 0.7, "completions": None, "cpu": 1.0}


def test_table():
  one = {"accuracy": 0.5, "completions": 1000, "cpu": 1.0}
  two = {"accuracy": 1.0, "completions": 3000, "cpu": 2.0}
  lost = {"accuracy": 0.1, "completions": None, "cpu": 1.0}
  silent = {"accuracy": None, "completions": None, "cpu": 1.0}
  results = {"a": [one, two], "b": [one], "c": [one, lost], "d": [silent]}
  rows = table(results).splitlines()[2:]
  assert rows == [
    "| a | 2 | 75.0% (50.0% to 100.0%) | 2,000 (1,000 to 3,000) | 1.50 |",
    "| b | 1 | 50.0% | 1,000 | 1.00 |",
    "| c | 2 | 30.0% (10.0% to 50.0%) | not reached | 1.00 |",
    "| d | 1 | unknown | not reached | 1.00 |",
  ]
