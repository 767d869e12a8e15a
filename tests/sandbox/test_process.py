"""Processes and limits of sandboxes."""

import time

import pytest

from pgax.sandbox import Limits, Process, SandboxError


def test_a_sandbox_that_cannot_be_created_raises_sandbox_error():
  task = {"role": "script", "code": ""}
  raises = pytest.raises(SandboxError, match="could not be created in time")
  with Process(task, Limits(), "limits") as process, raises:
    process.wait(time.monotonic())  # before the process can run anything


@pytest.mark.parametrize("name", ["seconds", "memory", "processes"])
def test_limits_must_be_positive(name):
  with pytest.raises(ValueError, match=f"{name} is 0; it must be positive"):
    Limits(**{name: 0})
