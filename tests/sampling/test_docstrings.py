"""The examples in the docstrings of the sampler are correct."""

import doctest
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pgax.sampling import logits, options, stopping

FUNCTIONS = (
  logits.next_token,
  logits.categorical,
  options.canonical,
  options.logit_bias,
  stopping.stop_table,
)
NAMES = {function.__name__: function for function in FUNCTIONS}
GLOBALS = {"jax": jax, "jnp": jnp, "Options": options.Options, **NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_example(name):
  examples = doctest.DocTestParser().get_doctest(
    inspect.getdoc(NAMES[name]), dict(GLOBALS), name, None, None
  )
  assert examples.examples
  with np.printoptions(precision=4, suppress=True):
    result = doctest.DocTestRunner(verbose=False).run(examples)
  assert result.failed == 0
