"""No setting is accepted and ignored: each changes the result of some call."""

import inspect
import typing

import jax
import numpy as np
import pytest

from pgax.ops import kl
from tests.ops.calls import CALLS, FUNCTIONS, OTHERS


def settings(name):
  """Parameters of a function that have a default, or are not given an array."""
  return {
    parameter.name: parameter
    for parameter in inspect.signature(FUNCTIONS[name]).parameters.values()
    if parameter.default is not parameter.empty
    or not isinstance(CALLS[name][parameter.name], np.ndarray)
  }


def differ(one, two):
  pairs = zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True)
  return any(
    np.shape(a) != np.shape(b) or not np.allclose(a, b, rtol=1e-4, atol=1e-6)
    for a, b in pairs
  )


def test_every_function_is_called():
  assert set(CALLS) == set(FUNCTIONS)


@pytest.mark.parametrize("name", CALLS)
def test_every_setting_is_varied(name):
  others = OTHERS.get(name, {})
  assert set(others) == set(settings(name))
  hints = typing.get_type_hints(FUNCTIONS[name])
  for key, parameter in settings(name).items():
    allowed = {bool: (False, True)}.get(hints[key], typing.get_args(hints[key]))
    if typing.get_origin(hints[key]) is typing.Literal or hints[key] is bool:
      # A flag or a choice is tried with every value.
      assert {parameter.default, *others[key]} == set(allowed)


@pytest.mark.parametrize(
  ("name", "key"), [(name, key) for name in OTHERS for key in OTHERS[name]]
)
def test_every_setting_changes_the_result(name, key):
  function, arguments = FUNCTIONS[name], CALLS[name]
  result = [function(**arguments)]
  result += [function(**{**arguments, key: value}) for value in OTHERS[name][key]]
  for i, one in enumerate(result):
    for two in result[i + 1 :]:
      assert differ(one, two), f"{name}: {key}"


CONTROLLERS = {
  kl.FixedController: ({"coef": 0.1}, {"coef": 0.2}),
  kl.AdaptiveController: (
    {"coef": 0.1, "target": 5.0, "horizon": 100},
    {"coef": 0.2, "target": 5.5, "horizon": 50},
  ),
  kl.AnnealedController: ({}, {"start": 0.9, "end": 0.5, "steps": 7}),
}


def test_every_controller_is_here():
  classes = {c for name, c in vars(kl).items() if inspect.isclass(c) and "Contr" in name}
  assert classes == set(CONTROLLERS)


@pytest.mark.parametrize("controller", CONTROLLERS)
def test_every_setting_of_a_controller_changes_its_coefficient(controller):
  base, others = CONTROLLERS[controller]

  def after_a_batch(options):
    made = controller(**options)
    return float(made.value(made.update(made.init(), 5.2, 10)))

  assert set(others) == set(inspect.signature(controller).parameters)
  for key, value in others.items():
    assert after_a_batch({**base, key: value}) != pytest.approx(after_a_batch(base))
