"""The table and the picture of token reversal, and its program."""

import numpy as np
import pytest

from experiments.reproductions.tpo.reversal_report import (
  THEIRS,
  Cell,
  draw,
  steps_to_goal,
  table,
)
from experiments.reproductions.tpo.reversal_runs import read_errors
from pgax.study.files import save_chunk


def falling(step, steps=100):
  """Errors of a seed that are below the goal from a step on."""
  return np.where(np.arange(steps) < step, 0.5, 0.0)


def test_cells_run_longer_than_the_paper_needs():
  assert [Cell(2, x).steps for x in THEIRS] == [120, 1280, 280, 1240]
  for method, numbers in THEIRS.items():
    for vocab, theirs in numbers.items():
      steps = Cell(vocab, method).steps
      assert steps >= max(1.4 * theirs, theirs + 60) > steps - 20
      assert steps % 20 == 0


def test_steps_are_those_of_the_mean_curve():
  # The mean is below 1 % where the last seed is, not where half of them are.
  errors = np.stack([falling(x) for x in (10, 20, 60)])
  step, low, high = steps_to_goal(errors)
  assert step == 60
  assert (low, high) == (10, 60)  # one draw of 27 has the first seed alone
  assert steps_to_goal(errors[:2])[0] == 20


def test_a_mean_that_does_not_get_there_is_infinite():
  errors = np.stack([falling(10), falling(200)])
  step, low, high = steps_to_goal(errors)
  assert (step, low, high) == (np.inf, 10, np.inf)  # one seed alone may be drawn twice


def test_the_table_compares_with_the_paper():
  results = {
    Cell(2, "TPO"): np.stack([falling(60), falling(50)]),
    Cell(4, "PPO"): np.full((1, 100), 0.25),
  }
  _, _, first, second = table(results).splitlines()
  assert first == "| 2 | TPO | 60 [50, 60] | 58 | +2 | 2 | 0.000% at 100 |"
  assert second == (
    "| 4 | PPO | over 100 [over 100, over 100] | 181 | not reached | 1 | 25.000% at 100 |"
  )


def test_a_panel_for_each_vocabulary_has_a_line_for_each_method():
  results = {
    Cell(2, "TPO"): np.stack([falling(60), falling(50)]),
    Cell(2, "DG"): np.full((1, 120), 0.25),
    Cell(4, "DG"): np.stack([falling(30), falling(20)]),
  }
  figure = draw(results)
  assert [x.get_title() for x in figure.axes] == ["2 tokens", "4 tokens"]
  assert [len(x.collections) for x in figure.axes] == [1, 1]  # one seed has no band
  # Whole curves: before anything is learned, up to 94 % of the tokens are wrong.
  assert {x.get_ylim() for x in figure.axes} == {(1e-4, 1)}
  (legend,) = figure.legends
  assert [x.get_text() for x in legend.get_texts()] == ["TPO", "DG"]


def test_finished_runs_are_read_in_order_once(tmp_path):
  assert read_errors(tmp_path, 20) is None
  for first, last in ((0, 1), (2, 3), (10, 11), (2, 2), (4, 9)):
    seeds = np.arange(first, last + 1.0)
    save_chunk(tmp_path / f"runs_{first}_to_{last}", {"error": seeds[:, None]})
  np.testing.assert_array_equal(read_errors(tmp_path, 20)[:, 0], np.arange(12))
  np.testing.assert_array_equal(read_errors(tmp_path, 5)[:, 0], np.arange(5))


@pytest.fixture
def run(call, tmp_path):
  arguments = ("--vocab=2", "--methods=DG", "--steps=2", f"--workdir={tmp_path}")
  return lambda *more: call("reproductions.tpo.token_reversal", *arguments, *more)


@pytest.mark.slow
def test_the_program_continues_and_reads_what_is_finished(run, tmp_path):
  assert run("--seeds=1").returncode == 0
  chunk = tmp_path / "vocab_2_DG" / "runs_0_to_0.npz"
  before = chunk.stat().st_mtime_ns
  assert run("--seeds=2").returncode == 0
  assert chunk.stat().st_mtime_ns == before
  (tmp_path / "token_reversal.png").unlink()
  finished = run("--seeds=20", "--finished")
  assert finished.returncode == 0
  assert "| 2 | DG | over 2 [over 2, over 2] | 199 | not reached | 2 |" in finished.stdout
  assert (tmp_path / "token_reversal.md").read_text() in finished.stdout
  assert (tmp_path / "token_reversal.png").stat().st_size > 1000
  other = run("--seeds=2", "--steps=3")
  assert other.returncode == 2


@pytest.mark.parametrize(
  ("argument", "message"),
  [
    ("--vocab=2,3", "--vocab is '2,3'; give different ones of 2, 4, 8, 16"),
    ("--methods=TPO,TPO", "--methods is 'TPO,TPO'; give different ones of TPO, GRPO"),
    ("--finished", "has no finished run"),
  ],
)
def test_the_program_rejects_what_it_can_not_run(call, tmp_path, argument, message):
  done = call("reproductions.tpo.token_reversal", f"--workdir={tmp_path}", argument)
  assert done.returncode == 2
  assert message in done.stderr
