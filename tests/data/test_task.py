"""Tasks: what every task guarantees."""

import pytest

from pgax.data import Task
from pgax.types import Example


def test_an_empty_split_is_rejected():
  with pytest.raises(ValueError, match="split 'held_out' is empty"):
    Task(train=[Example("1", "1")], held_out=[])
