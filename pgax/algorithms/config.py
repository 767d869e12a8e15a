"""Settings of parts that can be added to any algorithm."""

import dataclasses

from pgax.algorithms import parts
from pgax.algorithms.spec import Algorithm, EntropyBonus
from pgax.errors import check_at_least, check_each
from pgax.ops import kl
from pgax.ops.entropy import AdaptiveController


@dataclasses.dataclass(frozen=True)
class UpdateConfig:
  """Parts that are added to the algorithm's update; none by default.

  Attributes:
    entropy_coef: coefficient of an entropy bonus in the loss, and the initial one if there
      is a target; 0 without a target for no bonus.
    entropy_target: entropy in nats per token below which the coefficient of the bonus
      rises after each step, and above which it falls and is not used; 0 for a fixed
      coefficient.
    entropy_step: change of the coefficient after a step; ignored without a target.
    top_entropy: fraction of the batch's tokens, those of highest entropy, whose surrogate
      counts; 1 for all.
    target_kl: divergence from the old policy in nats per token, measured on the minibatch,
      that ends an update before its next optimizer step; 0 never ends it early.
    importance_cap: largest importance weight of a token, by which the loss is corrected for
      a sampler that is not the policy of the update, such as an older one (TIS, see
      `correction.truncated`); 0 keeps the algorithm's own correction, if it has one.
  """

  entropy_coef: float = 0.0
  entropy_target: float = 0.0
  entropy_step: float = 0.005
  top_entropy: float = 1.0
  target_kl: float = 0.0
  importance_cap: float = 0.0

  def __post_init__(self):
    check_at_least(self, 0, "entropy_coef", "entropy_target", "entropy_step", "target_kl")
    check_at_least(self, 0, "importance_cap")
    check_each(self, ["entropy_step"], lambda x: x > 0, "positive")
    check_each(self, ["top_entropy"], lambda x: 0 < x <= 1, "above 0 and at most 1")

  def added_to(self, algorithm: Algorithm) -> Algorithm:
    """Returns the algorithm with these parts; settings that are off change nothing.

    Args:
      algorithm: the algorithm.

    Returns:
      An `Algorithm`.
    """
    changes = {}
    if self.entropy_target:
      controller = AdaptiveController(
        self.entropy_target, self.entropy_step, self.entropy_coef
      )
      changes["entropy"] = EntropyBonus(controller)
    elif self.entropy_coef:
      changes["entropy"] = EntropyBonus(kl.FixedController(self.entropy_coef))
    if self.top_entropy < 1:
      changes["token_filter"] = parts.TopEntropy(self.top_entropy)
    if self.target_kl:
      changes["target_kl"] = self.target_kl
    if self.importance_cap:
      changes["sampler_correction"] = parts.TruncatedWeights(self.importance_cap)
    return dataclasses.replace(algorithm, **changes) if changes else algorithm
