"""The order of optimizer steps on a rollout, an argument of every preset."""

import dataclasses
import functools
import inspect
from collections.abc import Callable

from pgax.algorithms.spec import Algorithm

_ARGUMENTS = """
  epochs: number of passes over a rollout. Steps after the first are corrected for the
    change of the policy only where the surrogate has a ratio.
  minibatches: number of optimizer steps in a pass.
"""


def with_schedule(
  epochs: int = 1, minibatches: int = 1
) -> Callable[[Callable[..., Algorithm]], Callable[..., Algorithm]]:
  """Adds the arguments `epochs` and `minibatches` to a function that makes an algorithm.

  They are keyword arguments of its signature and items of its docstring, so they are
  settings of a run as all others are.

  Args:
    epochs: default number of passes over a rollout.
    minibatches: default number of optimizer steps in a pass.

  Returns:
    A decorator.
  """
  defaults = {"epochs": epochs, "minibatches": minibatches}

  def decorate(preset: Callable[..., Algorithm]) -> Callable[..., Algorithm]:
    signature = inspect.signature(preset)
    keyword = functools.partial(inspect.Parameter, kind=inspect.Parameter.KEYWORD_ONLY)
    added = [keyword(name, default=x, annotation=int) for name, x in defaults.items()]

    @functools.wraps(preset)
    def scheduled(*args: object, **arguments: object) -> Algorithm:
      schedule = {name: arguments.pop(name, x) for name, x in defaults.items()}
      return dataclasses.replace(preset(*args, **arguments), **schedule)

    parameters = [*signature.parameters.values(), *added]
    scheduled.__signature__ = signature.replace(parameters=parameters)
    scheduled.__doc__ = _documented(inspect.getdoc(preset) or "")
    return scheduled

  return decorate


def _documented(text: str) -> str:
  """Adds both arguments to a docstring, after the others."""
  head, returns, tail = text.partition("\n\nReturns:")
  if "\nArgs:\n" not in head:
    head += "\n\nArgs:"
  return f"{head}{_ARGUMENTS.rstrip()}{returns}{tail}"
