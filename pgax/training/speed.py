"""How fast a run is: its tokens per second, and its share of the peak."""

import dataclasses
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

from pgax.distributed.peak import peak_flops
from pgax.distributed.placement import fetch
from pgax.models.config import DecoderConfig
from pgax.models.flops import token_flops
from pgax.training.config import RunConfig
from pgax.types import Rollout


@dataclasses.dataclass(frozen=True)
class Speed:
  """Computes how fast a step was from its times.

  Attributes:
    model: configuration of the decoder.
    passes: number of forward passes that an update of a rollout takes at least, a backward
      pass counted as two.
    peak: operations per second of all devices; None if they are not known.
  """

  model: DecoderConfig
  passes: float
  peak: float | None = None

  def __call__(self, rollout: Rollout, metrics: Mapping[str, float]) -> dict[str, float]:
    """Computes metrics of a step.

    Args:
      rollout: the rollout that the step learned from.
      metrics: its times, and the number of tokens that were generated.

    Returns:
      `time/tokens_per_second`; with a known peak also `time/mfu_rollout` (without a lag)
      and `time/mfu_train`, the model's operations as a fraction of the peak.
    """
    seconds = sum(metrics[f"time/{name}"] for name in ("rollout", "reward", "train"))
    speed = {"time/tokens_per_second": metrics["tokens/generated"] / seconds}
    if self.peak is None:
      return speed
    masks = rollout.prompt_mask, rollout.token_mask
    counts, lengths = (
      x.astype(np.float64) for x in fetch([jnp.sum(mask, -1) for mask in masks])
    )
    # A prompt is read once for its group; a completion attends to it, and to itself.
    reading = sum(n * token_flops(self.model, n / 2) for n in counts)
    writing = sum(
      length * token_flops(self.model, prompt + length / 2)
      for prompt, group in zip(counts, lengths, strict=True)
      for length in group
    )
    generated = metrics["tokens/generated"] / max(lengths.sum(), 1.0)  # dropped ones, too
    once = reading + writing
    # With a lag it is the time of another rollout; what is stored takes none.
    if not {"rollout/lag", "rollout/stored"} & metrics.keys():
      speed["time/mfu_rollout"] = once * generated / (metrics["time/rollout"] * self.peak)
    speed["time/mfu_train"] = once * self.passes / (metrics["time/train"] * self.peak)
    return speed


def run_speed(config: RunConfig) -> Speed:
  """Returns the `Speed` of a run, with the peak of its devices if it is known.

  Args:
    config: configuration of the run.
  """
  algorithm = config.trained_algorithm
  trained = 2 if algorithm.critic else 1
  known = algorithm.needs_old_logp + algorithm.needs_reference + bool(algorithm.critic)
  peak = peak_flops(config.mesh.peak_flops)
  total = None if peak is None else peak * jax.device_count()
  return Speed(config.model, 3.0 * trained * algorithm.epochs + known, total)
