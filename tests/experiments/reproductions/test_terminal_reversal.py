"""Token reversal with a terminal reward: groups, rewards, the authors' first errors."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.reproductions.tpo import terminal
from experiments.reproductions.tpo.reversal_methods import METHODS
from experiments.reproductions.tpo.reversal_rollout import Task
from experiments.reproductions.tpo.terminal_report import THEIRS, Cell, draw, table
from pgax.study import run_program
from tests.experiments.reproductions.policies import noisy_params

TASK, GROUP = Task(vocab=2, length=2, prompts=16), 4


@pytest.fixture(scope="module")
def params():
  return noisy_params(TASK)


@pytest.fixture(scope="module")
def groups(params):
  sample = jax.jit(functools.partial(terminal.roll_out_groups, TASK, size=GROUP))
  return sample(params, jax.random.key(0))


def test_a_completion_is_right_as_a_whole(groups):
  prompts, completions = map(np.asarray, (groups.tokens, groups.candidates))
  assert completions.shape == (TASK.prompts, TASK.length, GROUP)
  right = (completions == prompts[:, ::-1, None]).all(1)
  np.testing.assert_array_equal(groups.rewards[:, 0], right)
  assert 0 < right.mean() < 1
  np.testing.assert_allclose(groups.error, 1 - right.mean(), rtol=1e-6)
  assert any(len(np.unique(x.T, axis=0)) > 1 for x in completions)  # a group differs


def test_a_shared_prompt_gives_the_log_probabilities_of_whole_sequences(params, groups):
  shared = jax.jit(functools.partial(terminal.completion_logp, TASK))
  whole = jax.jit(lambda x: TASK.model.apply(params, x, TASK.length)[0])
  for k in range(GROUP):
    completion = groups.candidates[..., k]
    tokens = jnp.concatenate([groups.tokens, completion], axis=1)[:, :-1]
    logp = jnp.take_along_axis(whole(tokens), completion[..., None], axis=-1)
    np.testing.assert_allclose(groups.logp[:, 0, k], logp.sum((1, 2)), atol=1e-5)
  np.testing.assert_allclose(shared(params, groups), groups.logp, atol=1e-5)
  assert np.ptp(groups.logp) > 0.5


def test_all_tokens_of_a_completion_have_its_reward(params):
  sample = jax.jit(functools.partial(terminal.roll_out_alone, TASK))
  rollout = sample(params, jax.random.key(0))
  prompts = np.asarray(rollout.tokens[:, : TASK.length])
  right = (np.asarray(rollout.candidates[..., 0]) == prompts[:, ::-1]).all(1)
  assert 0 < right.mean() < 1
  np.testing.assert_array_equal(rollout.rewards[..., 0], right[:, None] * np.ones(2))
  np.testing.assert_allclose(rollout.error, 1 - right.mean(), rtol=1e-6)


# Errors of seed 0 in the first steps of the authors' code, 800 completions in each.
FIRST = {
  "TPO": (0.99875, 0.995, 1.0, 1.0, 0.99125, 0.99),
  "PPO": (0.9975, 0.99125, 0.9925, 0.985, 0.98625, 0.9925),
}


@pytest.mark.parametrize("method", FIRST)
def test_a_run_begins_as_that_of_the_authors(method):
  theirs = FIRST[method]
  made = terminal.terminal_reversal(method, 7, "completions", len(theirs))
  metrics = run_program(made, [{}], [0], at_once=1, progress=False)
  # Another machine may round differently, and sample another completion or two.
  np.testing.assert_allclose(metrics["error"][0, 0], theirs, atol=3e-3)


def test_groups_are_the_same_runs_with_either_match():
  assert all(set(methods) == set(METHODS) for methods in THEIRS.values())
  for method, chosen in METHODS.items():
    folders = {Cell(match, 7, method).folder for match in THEIRS}
    assert len(folders) == (1 if chosen.candidates > 1 else 2)
  every = {Cell(x, y, z).folder for x in THEIRS for y in (7, 8) for z in METHODS}
  assert len(every) == 2 * (3 + 2 * 2)


def test_the_table_compares_with_the_paper():
  results = {
    Cell("prompts", 7, "TPO"): np.stack([np.linspace(1, x, 50) for x in (0.06, 0.1)]),
    Cell("completions", 10, "PPO"): np.full((1, 50), 0.975),
  }
  _, _, first, second = table(results).splitlines()
  assert first == "| prompts | 7 | TPO | 8.0 % [6.0, 10.0] at 50 | 6.9 % | +1.1 | 2 |"
  assert second == "| completions | 10 | PPO | 97.5 % at 50 | over 95 % | - | 1 |"


def test_a_panel_for_each_match_and_length():
  results = {
    Cell("prompts", 7, "TPO"): np.stack([np.linspace(1, x, 50) for x in (0.06, 0.1)]),
    Cell("completions", 10, "PPO"): np.full((1, 3), 0.975),
  }
  figure = draw(results)
  titles = [panel.get_title() for panel in figure.axes]
  assert titles == ["7 tokens", "10 tokens"] * 2
  with_lines = [bool(panel.lines) for panel in figure.axes]
  assert with_lines == [True, False, False, True]
