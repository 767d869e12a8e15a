"""The ablations: their runs can be studied, and a small one runs from start to end."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.ablations import job
from experiments.ablations.choice import Choice, choose
from experiments.ablations.run import chosen, run_ablation, shortened
from experiments.ablations.runs import ABLATIONS
from pgax.algorithms import parts
from pgax.algorithms.numbers import partition_at
from pgax.data import byte_tokenizer
from pgax.errors import UserError
from pgax.rewards.math import final_answer
from pgax.study import check_run, free_numbers
from pgax.types import AdvantageInputs
from tests import tiny

TOKENIZER = byte_tokenizer()


def small(run):
  """The run with few problems, since a check reads all of them."""
  train, held_out = ([x[i] for i in range(4)] for x in (run.task.train, run.task.held_out))
  task = dataclasses.replace(run.task, train=train, held_out=held_out)
  return dataclasses.replace(job.without_warm_start(run), task=task)


@pytest.mark.slow
@pytest.mark.parametrize("name", ABLATIONS)
def test_runs_can_be_studied(name):
  runs = list(ABLATIONS[name].runs().values())
  structures = []
  for run in runs:
    structure = partition_at(run, free_numbers(run)).structure
    known = dataclasses.replace(structure, task=runs[0].task)
    if known not in structures:
      structures.append(known)
      check_run(small(run), TOKENIZER)
  # A choice of a part is a number.
  programs = {"off_policy": 3, "kl": 3, "group_size": len(runs)}
  assert len(structures) == programs.get(name, 1)


@pytest.mark.parametrize("name", ABLATIONS)
def test_no_two_runs_are_the_same(name):
  runs = list(ABLATIONS[name].runs().values())
  task = runs[0].task
  runs = [dataclasses.replace(run, task=task) for run in runs]
  assert all(runs.count(run) == 1 for run in runs)
  assert len({run.steps for run in runs}) == 1


def test_groups_have_equally_many_completions():
  runs = ABLATIONS["group_size"].runs().values()
  assert len({run.sampling.completions_per_step for run in runs}) == 1


BASELINES = (parts.NoBaseline(), parts.MovingAverageBaseline(), parts.GroupNormalized())


@pytest.mark.parametrize("part", BASELINES)
def test_a_choice_is_its_part(part):
  rewards = jnp.array([[0.0, 1.0, 1.0], [0.0, 0.0, 1.0]])
  mask = jnp.ones((2, 3, 4), bool)
  inputs = AdvantageInputs(
    rewards=rewards,
    valid=rewards >= 0,
    action_mask=mask,
    penalty=jnp.zeros(mask.shape),
    baseline=jnp.float32(0.25),
  )
  choice = choose(part, BASELINES)
  found = jax.jit(lambda index: Choice(BASELINES, index)(inputs))(choice.index)
  np.testing.assert_allclose(found, part(inputs), rtol=1e-6)
  np.testing.assert_allclose(choice(inputs), part(inputs), rtol=1e-6)


def test_solutions_are_long_and_short():
  problems = job.long_and_short_sums().train
  examples = [problems[i] for i in range(0, 2000, 10)]
  short = [x for x in examples if x.solution.startswith("####")]
  assert 70 < len(short) < 130
  assert [problems[i] for i in range(10)] == [problems[i] for i in range(10)]
  assert all(
    final_answer(x.prompt, x.solution, x.ground_truth)["reward"] == 1 for x in short
  )


@pytest.mark.slow
def test_a_small_ablation(tmp_path, monkeypatch):
  ablation = ABLATIONS["baseline"]
  runs = shortened(ablation.runs(), 2)
  warm = tiny.run_config().supervised
  tiny_runs = {
    name: dataclasses.replace(
      small(runs[name]),
      model=tiny.CONFIG,
      supervised=warm,
      sampling=dataclasses.replace(runs[name].sampling, prompts_per_step=2, group_size=2),
      evaluation=dataclasses.replace(runs[name].evaluation, every=1, problems=2),
    )
    for name in ("none", "group")
  }
  text = run_ablation(ablation, tiny_runs, tmp_path, "baseline", seeds=2)
  assert [line.split(" | ")[0] for line in text.splitlines()] == [
    "|",
    "| ---",
    "| none",
    "| group",
  ]
  folder = tmp_path / "baseline"
  assert (folder / "table.md").read_text() == text
  assert (folder / "curves.png").stat().st_size > 10_000
  with np.load(folder / "metrics.npz") as arrays:
    assert arrays["eval|accuracy"].shape == (2, 2, 3)
    norms = arrays["grad_norm"]
    assert norms.shape == (2, 2, 2) and np.isfinite(norms).all()
  # What is done is not done again.
  monkeypatch.setattr("pgax.study.engine._run_chunk", None)
  assert run_ablation(ablation, tiny_runs, tmp_path, "baseline", seeds=2) == text


def test_names():
  assert chosen(["all"]) == list(ABLATIONS)
  assert chosen(["kl", "std", "kl"]) == ["kl", "std"]
  with pytest.raises(UserError, match="--name has 'klp'; allowed are all, baseline, leng"):
    chosen(["std", "klp"])
  with pytest.raises(UserError, match="--name is empty; allowed are all, baseline, leng"):
    chosen([])
