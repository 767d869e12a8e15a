"""The ops as parts of an algorithm: frozen, so that equal settings share one jit trace.

Each part fits one of the protocols of `pgax.types`, holds its settings as fields, and calls
the op of the same meaning. A module function of the right signature is a part as well.
"""

from pgax.algorithms.parts.advantages import (
  GAE,
  AboveBaseline,
  AboveGreedy,
  BatchMean,
  GroupCentred,
  GroupStandardised,
  LambdaReturn,
  LeaveOneOut,
  LengthAdaptiveGAE,
  LengthWeighted,
  RelativeToMean,
  ReturnToGo,
  StepsStandardised,
)
from pgax.algorithms.parts.critic import CrossEntropy, SquaredError
from pgax.algorithms.parts.imitation import Imitation, RewardAbove
from pgax.algorithms.parts.rewards import (
  Bounded,
  MissingEOS,
  Normalised,
  Overlong,
  Whitened,
)
from pgax.algorithms.parts.surrogates import (
  Clipped,
  ClippedWeight,
  Contrastive,
  GeometricMean,
  Pairwise,
  PolicyGradient,
  ReferenceWeighted,
  SequenceClipped,
  SoftGate,
  SquaredMirror,
  TrustedTokens,
  Unclipped,
)
from pgax.algorithms.parts.weights import (
  FixedLength,
  IcePop,
  SequenceTruncated,
  Truncated,
)

__all__ = [
  "GAE",
  "AboveBaseline",
  "AboveGreedy",
  "BatchMean",
  "Bounded",
  "Clipped",
  "ClippedWeight",
  "Contrastive",
  "CrossEntropy",
  "FixedLength",
  "GeometricMean",
  "GroupCentred",
  "GroupStandardised",
  "IcePop",
  "Imitation",
  "LambdaReturn",
  "LeaveOneOut",
  "LengthAdaptiveGAE",
  "LengthWeighted",
  "MissingEOS",
  "Normalised",
  "Overlong",
  "Pairwise",
  "PolicyGradient",
  "ReferenceWeighted",
  "RelativeToMean",
  "ReturnToGo",
  "RewardAbove",
  "SequenceClipped",
  "SequenceTruncated",
  "SoftGate",
  "SquaredError",
  "SquaredMirror",
  "StepsStandardised",
  "Truncated",
  "TrustedTokens",
  "Unclipped",
  "Whitened",
]
