"""The reward of countdown: which completions reach the target."""

import pytest

from pgax.tasks import Countdown

GIVEN = {"numbers": (2, 3, 7)}


@pytest.mark.parametrize(
  ("completion", "reward", "formatted"),
  [
    ("2*7+3", 1, 1),
    ("so (3+2*7) is it? #### 3+7*2\nyes", 1, 1),
    ("<answer> 3 + 7 * 2 </answer> #### 1", 1, 1),
    ("<answer>2</answer> <answer>3+(2*7)</answer>", 1, 1),
    ("in <answer> tags <answer>3+(2*7)</answer>", 1, 1),
    ("7+3+2", 0, 1),
    ("17", 0, 0),
    ("2*7+3=17", 0, 0),
    ("2*7+3+0", 0, 0),
    ("2*7", 0, 0),
    ("2*7+3*2/2", 0, 0),
    ("2*7+3 #### no", 0, 0),
    ("7/(3-3)*2", 0, 0),
    ("", 0, 0),
  ],
)
def test_each_number_must_be_used_once(completion, reward, formatted):
  scores = Countdown()("", completion, "17", GIVEN)
  assert scores == {"reward": reward, "accuracy": reward, "format": formatted}


def test_numbers_at_most_once_and_a_format_score():
  assert Countdown()("", "2*7", "14", GIVEN)["reward"] == 0
  assert Countdown(use_all=False)("", "2*7", "14", GIVEN)["reward"] == 1
  assert Countdown(use_all=False)("", "7+7", "14", GIVEN)["reward"] == 0
  scores = Countdown(format_score=0.1)("", "2+3+7", "17", GIVEN)
  assert scores == {"reward": 0.1, "accuracy": 0.0, "format": 1.0}
  assert Countdown()("", "6/(2-2)", "3", {"numbers": [6, 2, 2]})["format"] == 1
  with pytest.raises(ValueError, match="format_score is inf"):
    Countdown(format_score=float("inf"))
  with pytest.raises(ValueError, match=r"the metadata has the keys .* no 'numbers'"):
    Countdown()("", "2", "2", {})
