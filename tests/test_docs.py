"""The code of the README and of the docs runs, and their links lead somewhere.

A block of Python that begins with a comment such as `# mine.py` belongs to a file of that
name, and every other block is executed.
"""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from pgax import algorithms
from pgax.algorithms import presets
from pgax.algorithms.parts import surrogates as surrogate_parts
from pgax.algorithms.presets import group
from pgax.ops.surrogates import token
from pgax.runs.json_lines import read_lines
from tests.forked import last_of_each, open_programs

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# Small enough to be run by a test.
SMALL = [
  "--config.sampling.prompts_per_step=4",
  "--config.sampling.group_size=4",
  "--config.model.embed_dim=32",
  "--config.model.head_dim=8",
  "--config.model.mlp_dim=48",
  "--config.evaluation.problems=8",
  "--config.steps=1",
]


@pytest.fixture(scope="module")
def call():
  """A program of `experiments`, by its name, with arguments."""
  with open_programs() as programs:
    yield lambda program, *arguments, **options: programs(
      f"experiments.{program}", *arguments, **options
    )


def blocks(page, language="python"):
  """Returns the code blocks of a page."""
  return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)


def write_files(page, folder):
  """Writes the blocks that name a file into it; returns the other blocks."""
  others = []
  for block in blocks(page):
    if name := re.match(r"# (\w+\.py)\n", block):
      with (folder / name[1]).open("a") as file:
        file.write(block)
    else:
      others.append(block)
  return others


def command(page, program):
  """Returns the arguments of the page's command for a program."""
  lines = "".join(blocks(page, "bash")).splitlines()
  (line,) = (x for x in lines if x.startswith(f"python -m experiments.{program} --config="))
  return line.split()[3:]


@pytest.mark.parametrize("name", ["README.md", "docs/guide.md"])
def test_code_runs(name, tmp_path):
  namespace = {}
  for block in write_files(ROOT / name, tmp_path):
    exec(block, namespace)
  assert namespace


@pytest.mark.parametrize(
  ("name", "config", "changes"),
  [
    (
      "README.md",
      "mine_config.py",
      ["--config.supervised.steps=3", "--config.algorithm.kl_coef=0.01"],
    ),
    pytest.param("docs/guide.md", "sums.py", [], marks=pytest.mark.slow),
  ],
)
def test_a_custom_run(call, tmp_path, name, config, changes):
  write_files(ROOT / name, tmp_path)
  rows = [{"question": f"{i}+7=", "answer": str(i + 7)} for i in range(99)]
  (tmp_path / "sums.jsonl").write_text("\n".join(map(json.dumps, rows)))
  text = (tmp_path / config).read_text()
  (tmp_path / config).write_text(text.replace("sums.jsonl", f"{tmp_path}/sums.jsonl"))
  given = [x for x in command(ROOT / name, "train") if "workdir" not in x]
  given = [x.replace(config, f"{tmp_path}/{config}") for x in given]
  workdir = f"--workdir={tmp_path}/run"
  arguments = last_of_each(workdir, *given, *SMALL, *changes)
  done = call("train", *arguments, path=tmp_path)
  assert done.returncode == 0, done.stderr[-2000:]
  (row,) = read_lines(tmp_path / "run" / "metrics.jsonl")[1:]
  assert np.isfinite(row["loss"])
  done = call("evaluate", workdir, "--problems=0", path=tmp_path)
  assert ", step 1 of 1: 0.0% of" in done.stdout, done.stderr[-2000:]
  if name == "README.md":  # whose reward is negative for what is long and wrong
    assert row["reward/mean"] < 0 and row["loss/policy"] != 0
    done = call("evaluate", workdir)
    assert done.returncode == 2 and "No module named 'mine'" in done.stderr


def test_the_recipe_of_an_algorithm():
  texts = blocks(ROOT / "docs" / "adding_an_algorithm.md")
  op, part, preset = (
    next(text for text in texts if start in text)
    for start in ("def tanh_gate", "class TanhGate", "def tanh_po")
  )
  # Each in the module that the page puts it into.
  ops = dict(vars(token))
  exec(op, ops)
  parts = vars(surrogate_parts) | {
    "surrogates": SimpleNamespace(tanh_gate=ops["tanh_gate"])
  }
  exec(part, parts)
  known = vars(algorithms.parts) | {"TanhGate": parts["TanhGate"]}
  module = vars(group) | {"parts": SimpleNamespace(**known)}
  exec(preset, module)
  algorithm = module["tanh_po"](width=0.3)
  assert algorithm.surrogate.width == 0.3 and not algorithm.needs_reference
  logp = np.log([[[0.5, 0.25]]])
  batch = SimpleNamespace(old_logp=logp, advantages=np.ones((1, 1, 2)))
  np.testing.assert_allclose(algorithm.surrogate(logp, batch).loss, -1.0)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
  headings = {}
  for other in PAGES:
    titles = re.findall(r"^#+ (.*)$", other.read_text(), re.MULTILINE)
    headings[other] = {re.sub(r"[^\w -]", "", x).lower().replace(" ", "-") for x in titles}
  for link in re.findall(r"\]\(([^)]+)\)", page.read_text()):
    path, _, heading = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    assert target.exists(), link
    assert not heading or heading in headings[target], link


def test_numbers_of_the_readme():
  text = (ROOT / "README.md").read_text()
  assert f"[{len(presets.ALL)} presets]" in text
  assert len(text.splitlines()) < 200
