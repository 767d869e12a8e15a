"""The program of studies: its grid, its table and its picture."""

import numpy as np
import pytest

from experiments.configs import grpo
from experiments.study_grid import make_runs, parse_axis
from experiments.study_report import draw, interval, write_study
from pgax.errors import UserError
from pgax.study import Study

CONFIG = grpo.get_config()


def test_an_axis_has_the_types_of_its_setting():
  axis = parse_axis(CONFIG, "algorithm.clip_high=0.2,1")
  assert axis == ("algorithm.clip_high", [0.2, 1.0])
  assert parse_axis(CONFIG, "sampling.group_size=4,8") == ("sampling.group_size", [4, 8])
  assert parse_axis(CONFIG, "config.optimizer.name=adamw,muon")[1] == ["adamw", "muon"]


@pytest.mark.parametrize(
  ("text", "message"),
  [
    (
      "algorithm.clip=0.2",
      "config.algorithm has no key 'clip'; allowed are clip_high",
    ),
    ("algorithm.clip_high", "has no values; give KEY=VALUE,VALUE"),
    ("algorithm.clip_high=", "has no values; give KEY=VALUE,VALUE"),
    ("algorithm.clip_high=a", "clip_high=a; it must be of type float"),
    ("sampling.group_size=4.5", "group_size=4.5; it must be of type int"),
    ("algorithm=1", "'algorithm', which is no number"),
    ("init_from_run=a,b", "'init_from_run'; all settings start from the same"),
    ("model.path=a,b", "'model.path'; all settings start from the same"),
    ("sampling.banned_tokens=5", "'sampling.banned_tokens', which is no number"),
    ("learner.keep_reference=1", "keep_reference=1; it must be of type bool"),
    ("seed=1,2", "'seed'; every setting has the seeds of --seeds"),
    ("optimizer.learning_rate=0.001,1e-3", "has a value twice"),
  ],
)
def test_a_bad_axis_is_rejected(text, message):
  with pytest.raises(UserError, match=message):
    parse_axis(CONFIG, text)


def test_runs_are_all_combinations_with_one_task():
  grid = {"algorithm.clip_high": [0.2, 0.28], "sampling.group_size": [4, 8]}
  runs = make_runs(CONFIG, grid)
  assert list(runs) == [
    "clip_high=0.2 group_size=4",
    "clip_high=0.2 group_size=8",
    "clip_high=0.28 group_size=4",
    "clip_high=0.28 group_size=8",
  ]
  assert len({id(run.task) for run in runs.values()}) == 1
  last = runs["clip_high=0.28 group_size=8"]
  assert (last.algorithm.surrogate.clip_high, last.sampling.group_size) == (0.28, 8)
  assert list(make_runs(CONFIG, {})) == ["grpo"]
  close = {"algorithm.clip_high": [0.2, 0.2000001]}  # equal in six digits
  assert list(make_runs(CONFIG, close)) == ["clip_high=0.2", "clip_high=0.2000001"]


METRICS = {
  "eval/accuracy": np.linspace(0, 1, 2 * 3 * 3).reshape(2, 3, 3),
  "reward/mean": np.linspace(0, 1, 2 * 3 * 4).reshape(2, 3, 4),
  "completions/generated": np.full((2, 3, 4), 16.0),
  "time/run": np.ones((2, 3)),
}
STUDY = Study(("a", "b"), (0, 1, 2), METRICS, eval_every=2)


def test_what_a_study_writes(tmp_path):
  text = write_study(STUDY, tmp_path, "title", "eval/accuracy", 0.6)
  assert text == (tmp_path / "table.md").read_text()
  *_, first, second = text.splitlines()
  assert first.startswith("| a | 0.294 [") and "not reached" in first
  assert second.startswith("| b | 0.824 [") and second.endswith("| 1.0 |")
  assert (tmp_path / "curves.png").stat().st_size > 10_000
  with np.load(tmp_path / "metrics.npz") as arrays:
    assert arrays["names"].tolist() == ["a", "b"]
    np.testing.assert_array_equal(arrays["reward|mean"], METRICS["reward/mean"])


@pytest.mark.parametrize("metric", ["eval/accuracy", "reward/mean"])
def test_a_picture_has_all_settings_on_all_axes(metric):
  figure = draw(STUDY, "title", metric)
  steps, completions, seconds = (panel.get_lines() for panel in figure.axes)
  assert [line.get_label() for line in steps] == ["a", "b"]
  expected = {"eval/accuracy": [0, 2, 4], "reward/mean": [1, 2, 3, 4]}[metric]
  assert steps[0].get_xdata().tolist() == expected
  assert completions[0].get_xdata().tolist() == [16 * x for x in expected]
  assert seconds[1].get_xdata().tolist() == [x / expected[-1] for x in expected]
  np.testing.assert_allclose(steps[1].get_ydata(), METRICS[metric][1].mean(0), rtol=1e-6)


def test_an_interval():
  assert interval((0.5, 0.25, 0.75), "{:.0%}") == "50% [25%, 75%]"
  assert interval((np.nan,) * 3, "{:.0%}") == "unknown"
