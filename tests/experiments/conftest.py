"""How the tests of programs start them."""

import pytest

from tests.forked import open_programs


@pytest.fixture(scope="module")
def call():
  """A program of `experiments`, by its name, with arguments and the text of its input."""
  with open_programs() as programs:
    yield lambda program, *arguments, **options: programs(
      f"experiments.{program}", *arguments, **options
    )
