"""Parts that turn live log-probabilities and a batch into a per-token loss."""

import dataclasses
from typing import Literal

from pgax.ops import surrogates
from pgax.types import Array, Batch, SurrogateLoss


@dataclasses.dataclass(frozen=True)
class PolicyGradient:
  """`-A * logp`; see `surrogates.policy_gradient`."""

  def __call__(self, logp: Array, batch: Batch) -> SurrogateLoss:
    return surrogates.policy_gradient(logp, batch.advantages)


@dataclasses.dataclass(frozen=True)
class Unclipped:
  """`-A * ratio`; see `surrogates.unclipped`."""

  def __call__(self, logp: Array, batch: Batch) -> SurrogateLoss:
    return surrogates.unclipped(logp, batch.old_logp, batch.advantages)


@dataclasses.dataclass(frozen=True)
class Clipped:
  """PPO's clipped surrogate; see `surrogates.clipped`."""

  clip_low: float = 0.2
  clip_high: float = 0.2
  dual_clip: float | None = None

  def __call__(self, logp: Array, batch: Batch) -> SurrogateLoss:
    return surrogates.clipped(
      logp,
      batch.old_logp,
      batch.advantages,
      self.clip_low,
      self.clip_high,
      self.dual_clip,
    )


@dataclasses.dataclass(frozen=True)
class SequenceClipped:
  """The clip on one ratio for a whole sequence; see `surrogates.gspo`."""

  clip_low: float = 3e-4
  clip_high: float = 4e-4

  def __call__(self, logp: Array, batch: Batch) -> SurrogateLoss:
    return surrogates.gspo(
      logp, batch.old_logp, batch.advantages, batch.mask, self.clip_low, self.clip_high
    )


@dataclasses.dataclass(frozen=True)
class GeometricMean:
  """The geometric mean of bounded token ratios; see `surrogates.gmpo`."""

  clip: float = 0.4

  def __call__(self, logp: Array, batch: Batch) -> SurrogateLoss:
    return surrogates.gmpo(logp, batch.old_logp, batch.advantages, batch.mask, self.clip)


@dataclasses.dataclass(frozen=True)
class ClippedWeight:
  """The policy gradient under a clipped importance weight; see `surrogates.cispo`."""

  clip_low: float = 1.0
  clip_high: float = 0.28

  def __call__(self, logp: Array, batch: Batch) -> SurrogateLoss:
    return surrogates.cispo(
      logp, batch.old_logp, batch.advantages, self.clip_low, self.clip_high
    )


@dataclasses.dataclass(frozen=True)
class SoftGate:
  """A sigmoid in the place of the clip; see `surrogates.sapo`."""

  tau_pos: float = 1.0
  tau_neg: float = 1.05

  def __call__(self, logp: Array, batch: Batch) -> SurrogateLoss:
    return surrogates.sapo(
      logp, batch.old_logp, batch.advantages, self.tau_pos, self.tau_neg
    )


@dataclasses.dataclass(frozen=True)
class TrustedTokens:
  """The surrogate without tokens that have moved too far; see `surrogates.dppo`."""

  delta: float = 0.2

  def __call__(self, logp: Array, batch: Batch) -> SurrogateLoss:
    return surrogates.dppo(logp, batch.old_logp, batch.advantages, self.delta)


@dataclasses.dataclass(frozen=True)
class ReferenceWeighted:
  """Good completions, weighted by their ratio to the reference; see `surrogates.a_lol`."""

  clip: float = 0.9
  importance: Literal["sequence", "token", "none"] = "sequence"

  def __call__(self, logp: Array, batch: Batch) -> SurrogateLoss:
    return surrogates.a_lol(
      logp, batch.ref_logp, batch.advantages, batch.mask, self.clip, self.importance
    )


def _sequence_advantages(batch: Batch) -> Array:
  """The advantage of each completion, `[N, G]`: that of its first token, as of all."""
  return batch.advantages[..., 0]


@dataclasses.dataclass(frozen=True)
class SquaredMirror:
  """Squared distance to the mirror-descent solution; see `surrogates.mdpo_kimi`."""

  tau: float = 0.1

  def __call__(self, logp: Array, batch: Batch) -> SurrogateLoss:
    return surrogates.mdpo_kimi(
      logp, batch.old_logp, _sequence_advantages(batch), batch.mask, self.tau
    )


@dataclasses.dataclass(frozen=True)
class Pairwise:
  """Pairs of a group, their ratios clipped; see `surrogates.p3o`."""

  clip: float = 0.2
  form: Literal["separate", "joint"] = "separate"

  def __call__(self, logp: Array, batch: Batch) -> SurrogateLoss:
    return surrogates.p3o(
      logp,
      batch.old_logp,
      _sequence_advantages(batch),
      batch.mask,
      self.clip,
      self.form,
    )


@dataclasses.dataclass(frozen=True)
class Contrastive:
  """Pairs of a group, their difference regressed; see `surrogates.copg`."""

  beta: float = 0.05

  def __call__(self, logp: Array, batch: Batch) -> SurrogateLoss:
    return surrogates.copg(
      logp, batch.ref_logp, _sequence_advantages(batch), batch.mask, self.beta
    )
