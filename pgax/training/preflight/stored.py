"""Checks of a run that learns from stored completions."""

from pgax.data.completions import check_completions, read_completions
from pgax.training.config import RunConfig


def check_stored(config: RunConfig) -> None:
  """Checks that stored completions can be read, and that no setting would be ignored.

  Args:
    config: configuration of the run.

  Raises:
    ValueError: with the setting, or the line of the file.
    OSError: if the file cannot be read.
  """
  path, algorithm, sampling = (
    config.data.completions,
    config.trained_algorithm,
    config.sampling,
  )
  if not path:
    return
  for name, value in (
    ("the algorithm's dynamic_sampling", algorithm.dynamic_sampling),
    ("the algorithm's greedy_baseline", algorithm.greedy_baseline),
    ("the algorithm's components", algorithm.components),
    ("step_reward", config.step_reward),
    ("reward_model.path", config.reward_model.path),
    ("sampling.lag", sampling.lag),
    ("learner.router_replay or router_aux_coef", config.learner.needs_experts),
  ):
    if value:
      raise ValueError(
        f"data.completions is {path!r} and {name} is {value!r}; stored completions have "
        "the rewards of their file and nothing else, so it would be ignored"
      )
  groups = read_completions(path, sampling.group_size)
  limits = sampling.max_prompt_tokens, sampling.max_completion_tokens
  check_completions(groups, *limits, config.model.vocab_size)
