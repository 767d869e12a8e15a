"""The comparison: one warm start, studies that continue, and a table of the results."""

import json

import pytest

from experiments.compare import compare, table
from experiments.preset_runs import preset_config
from pgax.errors import UserError
from pgax.training import with_settings
from pgax.training.loop import Stage


def small(name):
  """A preset's run at the size of the tests."""
  sampling = {"prompts_per_step": 4, "group_size": 4}
  sampling |= {"max_prompt_tokens": 5, "max_completion_tokens": 16}
  model = {"embed_dim": 32, "mlp_dim": 48, "head_dim": 8}
  supervised = {"steps": 30, "batch_size": 4, "optimizer.decay_steps": 30}
  changes = {"task.digits": 1, "steps": 3, "evaluation.problems": 6}
  changes |= {f"sampling.{name}": value for name, value in sampling.items()}
  changes |= {f"model.{name}": value for name, value in model.items()}
  changes |= {f"supervised.{name}": value for name, value in supervised.items()}
  return with_settings(preset_config(name), changes)


@pytest.mark.slow
def test_presets_share_their_warm_start_and_go_on(tmp_path, monkeypatch):
  warm, looped = [], []
  step = Stage.step

  def counted(self, *args):
    (warm if self.prefix else looped).append(1)
    return step(self, *args)

  monkeypatch.setattr(Stage, "step", counted)
  first = compare(tmp_path, ["rloo"], 2, read_config=small)
  both = compare(tmp_path, ["rloo", "dapo"], 2, read_config=small)
  assert (len(warm), len(looped)) == (30, 2 * 2 * 3)
  assert (tmp_path / "table.md").read_text() == both
  assert both.startswith(first)
  assert compare(tmp_path, ["dapo", "rloo"], 2, read_config=small) == both
  assert (len(warm), len(looped)) == (30, 2 * 2 * 3)  # what is done is done


def test_a_bad_run_is_rejected_before_the_first_one_starts(tmp_path):
  with pytest.raises(UserError, match="pretraining is 10 and steps is 2"):
    compare(tmp_path, ["grpo", "vapo"], 2, steps=2, read_config=small)
  assert list(tmp_path.iterdir()) == []


def test_table(tmp_path):
  row = {
    "name": "rloo",
    "seeds": 3,
    "final": [0.5, 0.4, 0.6],
    "area": [0.3, 0.2, 0.4],
    "completions": [1500.0, 1000.0, 2000.0],
    "reached": 2,
    "seconds": 12.3,
  }
  (tmp_path / "rloo.json").write_text(json.dumps(row))
  lost = row | {"name": "grpo", "reached": 0, "completions": [float("nan")] * 3}
  (tmp_path / "grpo.json").write_text(json.dumps(lost))
  assert table(tmp_path).splitlines()[2:] == [
    "| rloo | 3 | 50.0% [40.0%, 60.0%] | 30.0% [20.0%, 40.0%] "
    "| 1,500 [1,000, 2,000] in 2 of 3 | 12 |",
    "| grpo | 3 | 50.0% [40.0%, 60.0%] | 30.0% [20.0%, 40.0%] | not reached | 12 |",
  ]
