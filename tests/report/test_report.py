"""The report draws what was measured and escapes the text of completions."""

import re

import numpy as np
import pytest

from pgax.report import completion_html, draw_curves, samples_html, write_report
from pgax.report.curves import PANELS, SUPERVISED_PANELS
from pgax.report.tokens import advantage_color, logp_color

ROWS = [{"step": 0, "eval/accuracy": 0.25}] + [
  {"step": s, "reward/mean": 0.1 * s, "entropy": 1.0, "kl/ref": None} for s in (1, 2)
]
ROWS[2]["eval/accuracy"] = 0.75


def sample(**changes):
  return {
    "step": 1,
    "split": "train",
    "prompt": "<b>1+1=",
    "completion": "2</script>",
    "ground_truth": "2",
    "reward": 1.0,
    "right": True,
    "finished": True,
    "tokens": ["2", "</script>", "\n"],
    "logp": [-0.1, -6.0, 0.0],
    "advantages": [1.0, -0.5, 0.0],
  } | changes


def test_numbers_that_were_not_finite_have_no_color():
  page = completion_html(sample(logp=[-0.1, None, None], advantages=[None, 2.0, None]))
  assert page.count("--l:") == 1 and page.count("--a:") == 1
  assert 'style="" title=""' in page


def test_curves_draw_what_was_measured():
  figure = draw_curves(ROWS, "title")
  assert len(figure.axes) == len(PANELS) and figure.get_suptitle() == "title"
  accuracy, reward = figure.axes[0].lines
  np.testing.assert_allclose(accuracy.get_xydata(), [[0, 0.25], [2, 0.75]])
  np.testing.assert_allclose(reward.get_xydata(), [[1, 0.1], [2, 0.2]])
  assert not figure.axes[0].collections  # without an interval there is no band
  (divergence,) = figure.axes[2].lines  # null in the file: nothing to draw
  assert len(divergence.get_xydata()) == 0
  assert [text.get_text() for text in figure.axes[2].texts] == ["not measured"]
  assert not figure.axes[0].texts


def test_an_interval_is_a_band():
  ends = {0: (0.1, 0.4), 2: (0.5, 0.9)}
  rows = [dict(row) for row in ROWS]
  for step, (low, high) in ends.items():
    rows[step] |= {"eval/accuracy_low": low, "eval/accuracy_high": high}
  (band,) = draw_curves(rows, "title").axes[0].collections
  (outline,) = band.get_paths()
  corners = {(x, round(y, 6)) for x, y in outline.vertices.tolist()}
  assert corners == {(step, y) for step, pair in ends.items() for y in pair}


def test_page_shows_start_end_and_samples(tmp_path):
  held_out = sample(step=2, split="held_out", advantages=None, reward=None, finished=False)
  page = write_report(ROWS, [sample(), held_out], "GRPO & co", tmp_path / "report")
  text = page.read_text()
  assert (tmp_path / "report" / "curves.png").read_bytes().startswith(b"\x89PNG")
  assert "25.0% &rarr; 75.0%" in text and "GRPO &amp; co" in text
  assert ">truncated<" in text and "&ndash;" in text
  assert "http://" not in text and "https://" not in text  # it is self-contained


def test_the_supervised_stage_has_its_own_figure(tmp_path):
  rows = [{"step": s, "loss": 2.0 - s, "grad_norm": 1.0} for s in (1, 2)]
  text = write_report(ROWS, [], "SFT", tmp_path, supervised=rows).read_text()
  assert (tmp_path / "supervised.png").read_bytes().startswith(b"\x89PNG")
  assert re.findall(r'<img alt="(\w+)"', text) == ["curves", "supervised"]
  figure = draw_curves(rows, "SFT", SUPERVISED_PANELS[1:3], "supervised")
  loss, norm = (axes.lines[0].get_xydata() for axes in figure.axes)
  np.testing.assert_allclose(loss, [[1, 1], [2, 0]])
  np.testing.assert_allclose(norm, [[1, 1], [2, 1]])
  without = write_report(ROWS, [], "RL", tmp_path / "other").read_text()
  assert without.count("<img") == 1


def test_text_of_the_model_is_escaped():
  text = samples_html([sample()])
  assert "<script" not in text and "</script>" not in text and "<b>" not in text
  assert "&lt;/script&gt;" in text and "&lt;b&gt;1+1=" in text


def test_right_completions_are_marked_whatever_their_reward():
  text = samples_html([sample(), sample(right=False, reward=0.5)])
  assert '<td class="good">1<' in text and '<td class="bad">0.5<' in text


def test_every_token_has_its_numbers():
  spans = re.findall(
    r'<span class="t" style="([^"]*)" title="([^"]*)">', completion_html(sample())
  )
  assert [title for _, title in spans] == [
    "log-prob -0.100, advantage +1.000",
    "log-prob -6.000, advantage -0.500",
    "log-prob 0.000, advantage +0.000",
  ]
  assert "46,160,67,0.75" in spans[0][0] and "218,54,51,0.38" in spans[1][0]
  plain = completion_html(sample(advantages=None))
  assert "--a" not in plain and "advantage" not in plain


@pytest.mark.parametrize(
  ("logp", "alpha"), [(0.0, "0.00"), (-1.5, "0.50"), (-50.0, "1.00")]
)
def test_unlikely_is_blue(logp, alpha):
  assert logp_color(logp) == f"rgba(31,111,235,{alpha})"


def test_a_table_has_one_scale():
  text = samples_html([sample(), sample(advantages=[0.25, 0.0, 0.0])])
  assert "46,160,67,0.75" in text  # the largest of both
  assert "46,160,67,0.19" in text  # a quarter of it


def test_without_advantages_tokens_have_no_color():
  assert advantage_color(0.0, 0.0).endswith(",0.00)")


def test_empty_run(tmp_path):
  assert write_report([], [], "nothing yet", tmp_path).exists()
