"""One reward function for each task of a mixture."""

import pytest

from pgax.rewards import ByTask, by_task, final_answer


def shout(prompt, completion, ground_truth, metadata):
  return {"reward": 0.5 * completion.isupper()}


def test_each_task_has_its_own_reward():
  reward = by_task({"a": final_answer, "b": shout})
  assert reward == ByTask((("a", final_answer), ("b", shout)))
  scores = reward("", "#### 3", "3", {"mixture": "a"})
  assert scores == {
    "reward": 1.0,
    "accuracy": 1.0,
    "a": 1.0,
    "a/accuracy": 1.0,
    "a/format": 1.0,
  }
  assert reward("", "X", "", {"mixture": "b"}) == {"reward": 0.5, "accuracy": 0.0, "b": 0.5}
  with pytest.raises(ValueError, match="task is None; there are reward functions for a, b"):
    reward("", "", "", {})
  with pytest.raises(ValueError, match="functions has 'reward'"):
    by_task({"reward": shout})
