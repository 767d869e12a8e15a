"""Calls of every op in a process with float64: `python -m tests.ops.precise`.

Prints nothing, and fails if an op changes the precision of what it is given.
"""

import jax
import numpy as np

from tests.ops.calls import CALLS, MODULES


def convert(value, dtype: type):
  """Returns an array of floats in another precision, and anything else as it is."""
  is_float = isinstance(value, np.ndarray) and value.dtype == np.float32
  return value.astype(dtype) if is_float else value


def arguments(name: str, dtype: type) -> tuple[dict, dict]:
  """Returns the arrays of a call, floats in the precision, and its settings."""
  given = {key: convert(value, dtype) for key, value in CALLS[name].items()}
  if name.startswith("aggregation.") or name == "masking.lengths":
    given["mask"] = given["mask"].astype(dtype)
  arrays = {key: x for key, x in given.items() if isinstance(x, np.ndarray)}
  return arrays, {key: x for key, x in given.items() if key not in arrays}


def results(dtype: type) -> dict[str, list[jax.Array]]:
  """Calls every op that is given floats, all in one program; returns their floats."""
  calls = {name: arguments(name, dtype) for name in CALLS}
  calls = {
    name: call
    for name, call in calls.items()
    if any(x.dtype == dtype for x in call[0].values())
  }

  def compute(arrays: dict[str, dict]) -> dict:
    outputs = {}
    for name, given in arrays.items():
      module, _, function = name.rpartition(".")
      outputs[name] = getattr(MODULES[module], function)(**given, **calls[name][1])
    return outputs

  outputs = jax.jit(compute)({name: arrays for name, (arrays, _) in calls.items()})
  return {
    name: [x for x in jax.tree.leaves(output) if jax.numpy.issubdtype(x, np.floating)]
    for name, output in outputs.items()
  }


def check(name: str, wide: list[jax.Array], narrow: list[jax.Array]) -> None:
  """Fails unless an op keeps the precision of its arguments, and uses it."""
  if name in SELECTIONS:
    assert not wide, name
    return
  assert wide and all(x.dtype == np.float64 for x in wide), name
  assert all(x.dtype == np.float32 for x in narrow), name
  for a, b in zip(wide, narrow, strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5, err_msg=name)
  # With these inputs, no op but those that select or copy is exact in float32.
  pairs = zip(wide, narrow, strict=True)
  exact = all(np.array_equal(a, np.asarray(b, np.float64)) for a, b in pairs)
  assert not exact or name in EXACT, name


SELECTIONS = {"entropy.top_fraction"}  # have no float in their results
EXACT = {
  "advantages.at_last_token",
  "aggregation.sequence_sum",  # of 8 sequences
  "logprobs.token_logp",
  "masking.lengths",
  "masking.select",
  "shaping.clip",
}

if __name__ == "__main__":
  assert jax.config.jax_enable_x64, "set JAX_ENABLE_X64=1"
  in_float64, in_float32 = results(np.float64), results(np.float32)
  assert len(in_float64) > 50
  for op_name, values in in_float64.items():
    check(op_name, values, in_float32[op_name])
