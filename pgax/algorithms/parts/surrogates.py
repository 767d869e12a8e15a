"""Parts that compute a per-token loss from log-probabilities and a batch."""

import dataclasses
from typing import Literal

import jax.numpy as jnp

from pgax.errors import check_one_of
from pgax.ops import surrogates
from pgax.types import Array, Batch, SurrogateLoss

__all__ = [
  "Clipped",
  "ClippedWeight",
  "Contrastive",
  "GeometricMean",
  "MirrorDescent",
  "Pairwise",
  "PolicyGradient",
  "ProbabilityClipped",
  "ReferenceWeighted",
  "SequenceClipped",
  "SigmoidGate",
  "TargetMatching",
  "Unclipped",
]


class _PerCompletion:
  """Surrogates by which the loss of a completion does not depend on any other."""

  compares_completions = False


@dataclasses.dataclass(frozen=True)
class PolicyGradient(_PerCompletion):
  """REINFORCE: `-A * logp`; see `surrogates.policy_gradient`."""

  def __call__(self, logp: Array, batch: Batch) -> SurrogateLoss:
    return surrogates.policy_gradient(logp, batch.advantages)


@dataclasses.dataclass(frozen=True)
class Unclipped(_PerCompletion):
  """TRPO's surrogate without its constraint: `-A * ratio`; see `surrogates.unclipped`."""

  def __call__(self, logp: Array, batch: Batch) -> SurrogateLoss:
    return surrogates.unclipped(logp, batch.old_logp, batch.advantages)


@dataclasses.dataclass(frozen=True)
class Clipped(_PerCompletion):
  """PPO: the clipped surrogate; see `surrogates.clipped`.

  Attributes:
    clip_low: largest distance of the ratio below 1, in [0, 1].
    clip_high: largest distance of the ratio above 1, at least 0.
    dual_clip: bound of the ratio for negative advantages, above 1; None for no bound.
  """

  clip_low: float = 0.2
  clip_high: float = 0.2
  dual_clip: float | None = None

  def __call__(self, logp: Array, batch: Batch) -> SurrogateLoss:
    return surrogates.clipped(
      logp, batch.old_logp, batch.advantages, self.clip_low, self.clip_high, self.dual_clip
    )


@dataclasses.dataclass(frozen=True)
class SequenceClipped(_PerCompletion):
  """GSPO: the clipped surrogate with one ratio for each sequence; see `surrogates.gspo`.

  Attributes:
    clip_low: largest distance of the ratio below 1, in [0, 1].
    clip_high: largest distance of the ratio above 1, at least 0.
  """

  clip_low: float = 3e-4
  clip_high: float = 4e-4

  def __call__(self, logp: Array, batch: Batch) -> SurrogateLoss:
    return surrogates.gspo(
      logp, batch.old_logp, batch.advantages, batch.loss_mask, self.clip_low, self.clip_high
    )


@dataclasses.dataclass(frozen=True)
class GeometricMean(_PerCompletion):
  """GMPO: the geometric mean of bounded token ratios; see `surrogates.gmpo`.

  Attributes:
    clip: bound of a token's log-ratio, nats, at least 0.
  """

  clip: float = 0.4

  def __call__(self, logp: Array, batch: Batch) -> SurrogateLoss:
    return surrogates.gmpo(
      logp, batch.old_logp, batch.advantages, batch.loss_mask, self.clip
    )


@dataclasses.dataclass(frozen=True)
class ClippedWeight(_PerCompletion):
  """CISPO: the policy gradient, times a clipped importance weight; see `surrogates.cispo`.

  Attributes:
    clip_low: largest distance of the weight below 1, in [0, 1]; 1 for no lower bound.
    clip_high: largest distance of the weight above 1, at least 0.
  """

  clip_low: float = 1.0
  clip_high: float = 0.28

  def __call__(self, logp: Array, batch: Batch) -> SurrogateLoss:
    return surrogates.cispo(
      logp, batch.old_logp, batch.advantages, self.clip_low, self.clip_high
    )


@dataclasses.dataclass(frozen=True)
class SigmoidGate(_PerCompletion):
  """SAPO: a sigmoid of the ratio instead of the clip; see `surrogates.sapo`.

  Attributes:
    tau_pos: sharpness for positive advantages, positive.
    tau_neg: sharpness for all other advantages, positive.
  """

  tau_pos: float = 1.0
  tau_neg: float = 1.05

  def __call__(self, logp: Array, batch: Batch) -> SurrogateLoss:
    return surrogates.sapo(
      logp, batch.old_logp, batch.advantages, self.tau_pos, self.tau_neg
    )


@dataclasses.dataclass(frozen=True)
class ProbabilityClipped(_PerCompletion):
  """DPPO: a bound on the change of each token's probability; see `surrogates.dppo`.

  Attributes:
    delta: largest change of a probability, in [0, 1].
    anchor: policy that the change and the ratio are relative to: `old` is the trainer's
      before the update, `sampler` the one that sampled, which differs in rounding,
      precision or age.
  """

  delta: float = 0.15
  anchor: Literal["old", "sampler"] = "old"

  def __post_init__(self):
    check_one_of(self, ("old", "sampler"), "anchor")

  def __call__(self, logp: Array, batch: Batch) -> SurrogateLoss:
    anchor = batch.old_logp if self.anchor == "old" else batch.rollout_logp
    return surrogates.dppo(logp, anchor, batch.advantages, self.delta)


def _check_reference(batch: Batch, part: object) -> None:
  if batch.ref_logp is None:
    raise ValueError(
      f"ref_logp is None; {type(part).__name__} needs the log-probabilities of the "
      "reference policy"
    )


@dataclasses.dataclass(frozen=True)
class ReferenceWeighted(_PerCompletion):
  """A-LoL: likelihood of good completions, times a clipped ratio; see `surrogates.a_lol`.

  Attributes:
    clip: largest distance of the ratio to the reference from 1, in [0, 1].
    importance: ratio to weight by, `sequence` or `token`; `none` for a weight of 1.
  """

  clip: float = 0.9
  importance: Literal["sequence", "token", "none"] = "sequence"

  def __call__(self, logp: Array, batch: Batch) -> SurrogateLoss:
    if self.importance != "none":
      _check_reference(batch, self)
    return surrogates.a_lol(
      logp, batch.ref_logp, batch.advantages, batch.loss_mask, self.clip, self.importance
    )


def _sequence_advantages(batch: Batch) -> Array:
  """The advantage of each completion, `[N, G]`: that of its first action, as of all."""
  first = jnp.argmax(batch.loss_mask, axis=-1)[..., None]
  return jnp.take_along_axis(batch.advantages, first, axis=-1)[..., 0]


@dataclasses.dataclass(frozen=True)
class MirrorDescent(_PerCompletion):
  """Kimi k1.5: squared distance to the mirror-descent optimum; see `surrogates.mdpo_kimi`.

  Attributes:
    tau: weight of the log-ratio, in units of reward per nat, positive.
  """

  tau: float = 0.1

  def __call__(self, logp: Array, batch: Batch) -> SurrogateLoss:
    return surrogates.mdpo_kimi(
      logp, batch.old_logp, _sequence_advantages(batch), batch.loss_mask, self.tau
    )


@dataclasses.dataclass(frozen=True)
class TargetMatching:
  """TPO: cross-entropy to a target over the completions of a group; see `surrogates.tpo`.

  Attributes:
    eta: temperature of the target, in units of advantage per nat, positive.
  """

  eta: float = 1.0

  def __call__(self, logp: Array, batch: Batch) -> SurrogateLoss:
    return surrogates.tpo(
      logp, batch.old_logp, _sequence_advantages(batch), batch.loss_mask, self.eta
    )


@dataclasses.dataclass(frozen=True)
class Pairwise:
  """P3O: the clipped policy gradient over the pairs of a group; see `surrogates.p3o`.

  Attributes:
    clip: largest distance of a ratio from 1; with `joint`, how far the difference of the
      log-ratios may move from 0, nats.
    form: `separate` clips each ratio (V1), `joint` the difference of log-ratios (V2).
  """

  clip: float = 0.2
  form: Literal["separate", "joint"] = "separate"

  def __call__(self, logp: Array, batch: Batch) -> SurrogateLoss:
    return surrogates.p3o(
      logp,
      batch.old_logp,
      _sequence_advantages(batch),
      batch.loss_mask,
      self.clip,
      self.form,
    )


@dataclasses.dataclass(frozen=True)
class Contrastive:
  """CoPG: squared loss over the pairs of a group; see `surrogates.copg`.

  Attributes:
    beta: coefficient of the divergence from the reference, positive.
  """

  beta: float = 0.05

  def __call__(self, logp: Array, batch: Batch) -> SurrogateLoss:
    _check_reference(batch, self)
    return surrogates.copg(
      logp, batch.ref_logp, _sequence_advantages(batch), batch.loss_mask, self.beta
    )
