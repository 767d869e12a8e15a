"""Preferences of addition: the right solution over one that forgets to carry."""

import pytest

from pgax.tasks import addition_preferences


def test_rejected_solutions_forget_the_carry():
  preferences = addition_preferences(digits=2)
  prompts = []
  for pairs in (preferences.train, preferences.held_out):
    prompts.append({pair.prompt for pair in pairs})
    for pair in pairs:
      a, b = map(int, pair.prompt.rstrip("=").split("+"))
      assert a % 10 + b % 10 >= 10
      answers = [int(x.rpartition(" ")[2]) for x in (pair.chosen, pair.rejected)]
      assert answers == [a + b, a + b - 10]
  assert not prompts[0] & prompts[1] and len(prompts[0] | prompts[1]) == 45 * 100
  with pytest.raises(ValueError, match="digits is 1; it must be from 2 to 4"):
    addition_preferences(1)
