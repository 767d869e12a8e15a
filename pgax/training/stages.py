"""The stages of a run: supervised training, reinforcement and preferences."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from transformers import PreTrainedTokenizerFast

from pgax.data.preferences import CollatePreferences, Preference, PreferenceBatch
from pgax.distributed.placement import fetch, put
from pgax.evaluation import Evaluation, evaluation_metrics
from pgax.learner.preference_step import RewardModelState, margins
from pgax.learner.state import TrainState
from pgax.learner.update import Update
from pgax.models import ScalarDecoder
from pgax.rollout.experience import Experience
from pgax.rollout.metrics import Stopwatch
from pgax.rollout.samples import Sample, make_samples
from pgax.runs.interrupt import check_stop
from pgax.training.loop import Metrics, Rows, Stop
from pgax.training.speed import Speed


def sample_rows(samples: Sequence[Sample]) -> list[dict[str, Any]]:
  """Returns completions as rows of `samples.jsonl`."""
  return [dataclasses.asdict(sample) for sample in samples]


@dataclasses.dataclass(frozen=True)
class PolicyEvaluation:
  """Evaluates the policy of a state on held-out problems, each time with the same keys.

  Attributes:
    evaluate: evaluates the policy of a state, unless stopped.
    counts: numbers of problems, logged with the evaluation before the first step.
    with_samples: whether to return completions as rows.
  """

  evaluate: Callable[[TrainState, Stop], Evaluation]
  counts: Mapping[str, int] = dataclasses.field(default_factory=dict)
  with_samples: bool = True

  def __call__(self, state: TrainState, stop: Stop = None) -> tuple[Metrics, Rows]:
    """Returns metrics and completions."""
    evaluation = self.evaluate(state, stop)
    counts = self.counts if int(state.step) == 0 else {}
    rows = sample_rows(evaluation.samples) if self.with_samples else ()
    return {**evaluation_metrics(evaluation), **counts}, rows


@dataclasses.dataclass(frozen=True)
class RolloutMeasures:
  """Times and speed of a step of reinforcement, and its completions as rows.

  Attributes:
    speed: computes how fast a step was.
    clock: measures the time of the run.
    tokenizer: tokenizer of the model.
  """

  speed: Speed
  clock: Stopwatch
  tokenizer: PreTrainedTokenizerFast

  def metrics(self, experience: Experience, metrics: Metrics) -> Metrics:
    """Returns the time of the run and the speed of the step."""
    times = {"time/total": self.clock.seconds}
    return times | self.speed(experience.rollout, metrics)

  def samples(self, experience: Experience, update: Update) -> Rows:
    """Returns the first completions with their advantages."""
    return sample_rows(
      make_samples(
        self.tokenizer,
        experience.prompts,
        experience.rollout,
        experience.results,
        update.advantages,
      )
    )


@dataclasses.dataclass(frozen=True)
class PairAccuracy:
  """Computes how often the chosen completion of a held-out pair scores higher.

  Attributes:
    model: module of the reward model.
    collate: collates pairs.
    held_out: the pairs.
    batch_size: number of pairs in a batch.
    sharding: sharding of batches.
  """

  model: ScalarDecoder
  collate: CollatePreferences
  held_out: Sequence[Preference]
  batch_size: int
  sharding: jax.sharding.Sharding

  def __call__(self, state: RewardModelState, stop: Stop = None) -> tuple[Metrics, Rows]:
    """Returns the accuracy of a state."""
    count, size, correct = len(self.held_out), self.batch_size, []
    for start in range(0, count, size):
      check_stop(stop)
      # The last batch is padded with copies, so that there is one shape.
      batch = [self.held_out[min(i, count - 1)] for i in range(start, start + size)]
      arrays = put(pair_arrays(self.collate(batch)), self.sharding)
      margin = fetch(margins(self.model, state.params, **arrays))
      correct.append(margin[: count - start] > 0)
    return {"eval/accuracy": float(np.mean(np.concatenate(correct)))}, ()


def pair_arrays(batch: PreferenceBatch) -> dict[str, np.ndarray]:
  """Returns the arguments of a preference step after the state, by their names."""
  return {
    "prompt_tokens": batch.prompts.tokens,
    "prompt_mask": batch.prompts.mask,
    "tokens": batch.tokens,
    "mask": batch.mask,
  }
