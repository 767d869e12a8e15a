"""The page of other libraries' numbers is current, and a wrong number would be reported."""

import dataclasses
import os
import re
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.conformance import page, rlax_numbers, trainers
from experiments.conformance.check import Check
from pgax import algorithms
from pgax.ops import advantages, kl, shaping

ROOT = Path(__file__).parents[2]


def test_the_page_is_current():
  pytest.importorskip("polgrad")
  command = [sys.executable, "-m", "experiments.conformance"]
  environment = os.environ | {"JAX_PLATFORMS": "cpu"}
  done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=ROOT)
  assert done.returncode == 0, done.stderr[-2000:]
  text = (ROOT / "docs" / "conformance.md").read_text()
  assert text == done.stdout, "python -m experiments.conformance > docs/conformance.md"


# float32 is exact enough for numbers that others print.
@pytest.mark.parametrize(
  "checks",
  [
    rlax_numbers.checks,
    trainers.trl_checks,
    trainers.verl_checks,
    trainers.nemo_checks,
  ],
)
def test_numbers_agree_in_float32(checks):
  rows = [dataclasses.replace(x, rtol=max(x.rtol, 1e-5)) for x in checks()]
  assert rows and not page.disagreements({"": rows})
  for row in rows:  # each would fail for another number
    changed = dataclasses.replace(row, actual=np.asarray(row.actual) * 1.01 + 0.01)
    assert page.disagreements({"section": [changed]}) == [f"section: {row.case}"]


@pytest.mark.parametrize("actual", [np.nan, [1.0, 1.0], 1.1, np.inf])
def test_what_does_not_agree(actual):
  assert Check("", "", 1.0, 1.0 + 1e-7, 1e-6).agrees()
  assert not Check("", "", 1.0, actual, 1e-6).agrees()


def test_differences_that_the_page_states():
  # Beyond the limit, the penalty stays -1.
  assert 0.5 * shaping.overlong(jnp.array([30]), 25, 5)[0] == -0.5
  # The gradient of k3 does not vanish far from the reference.
  slope = np.asarray(jnp.exp(4.0) - 1)
  value, gradient = jax.value_and_grad(kl.k3)(jnp.float32(-1.0), jnp.float32(3.0))
  assert value > 10 and -gradient == pytest.approx(float(slope), rel=1e-6)
  # A group of one has no advantage.
  assert advantages.grpo(jnp.array([0.7]), ddof=1) == 0.0
  group = jnp.array([1.0, 0.0, 0.0, 1.0])
  factor = advantages.grpo(group, ddof=1, eps=0.0) / advantages.grpo(group, eps=0.0)
  np.testing.assert_allclose(factor, np.sqrt(3 / 4), rtol=1e-6)


def test_tables_name_presets():
  text = (ROOT / "docs" / "conformance.md").read_text()
  table = text.partition("| pgax | TRL |")[2].partition("\n\n")[0]
  names = re.findall(r"^\| `(\w+)\(", table, re.MULTILINE)
  assert len(names) > 5 and set(names) <= {x.__name__ for x in algorithms.presets.ALL}
