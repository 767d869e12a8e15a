"""Warns when presets coincide for one optimizer step per rollout."""

import dataclasses

from pgax.algorithms import parts, presets
from pgax.algorithms.spec import Algorithm

# Surrogates of the ratio whose gradient is the policy gradient's where the ratio is 1.
OF_RATIO = (
  parts.Clipped,
  parts.ClippedWeight,
  parts.GeometricMean,
  parts.ProbabilityClipped,
  parts.SequenceClipped,
  parts.SigmoidGate,
  parts.Unclipped,
)


def single_step_remark(algorithm: Algorithm) -> str:
  """Describes a surrogate of the ratio that has one optimizer step per rollout.

  Args:
    algorithm: the algorithm.

  Returns:
    A text that names presets of the same gradient; empty if there are several steps, or the
    surrogate is none of the ratio.
  """
  kind = type(algorithm.surrogate)
  if algorithm.epochs * algorithm.minibatches > 1 or kind not in OF_RATIO:
    return ""
  same = [
    name for name, other in _ratio_presets().items() if _rest(other) == _rest(algorithm)
  ]
  names = f" ({', '.join(same)})" if len(same) > 1 else ""
  return (
    f"one optimizer step per rollout: every ratio is 1, so {kind.__name__} has the "
    f"gradient of the plain policy gradient, and algorithms that differ in it alone{names} "
    "are the same. Raise algorithm.minibatches or algorithm.epochs to make it count"
  )


def _ratio_presets() -> dict[str, Algorithm]:
  """Presets with such a surrogate, by how a text names them."""
  made = {preset.__name__: preset() for preset in presets.ALL}
  made["grpo without KL"] = presets.grpo(kl_coef=0.0)
  made["dapo without its sampling and shaping"] = presets.dapo(
    max_batches=1, overlong_coef=0.0
  )
  return {name: x for name, x in made.items() if type(x.surrogate) in OF_RATIO}


def _rest(algorithm: Algorithm) -> Algorithm:
  """The algorithm without its surrogate, in one optimizer step."""
  plain = parts.PolicyGradient()
  return dataclasses.replace(algorithm, surrogate=plain, epochs=1, minibatches=1)
