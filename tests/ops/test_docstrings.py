"""Every public op has a worked example in its docstring, and the example is correct."""

import doctest
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.ops.calls import FUNCTIONS, MODULES

GLOBALS = {"jax": jax, "jnp": jnp, **MODULES}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_example(name):
  examples = doctest.DocTestParser().get_doctest(
    inspect.getdoc(FUNCTIONS[name]), dict(GLOBALS), name, None, None
  )
  assert examples.examples, f"the docstring of {name} has no example"
  # The globals are the ops by their public names.
  with np.printoptions(precision=4, suppress=True):
    result = doctest.DocTestRunner(verbose=False).run(examples)
  assert result.failed == 0
