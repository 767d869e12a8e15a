"""Commands without another run before them: refused and mended, and SFT alone."""

import json
import re
from pathlib import Path

import pytest

from pgax.runs.json_lines import read_lines
from tests.experiments.small import SMALL

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
  ("arguments", "told"),
  [
    (
      ["--config.sampling.temperatur=1"],
      "config.sampling has no key 'temperatur'; allowed are banned_tokens, group",
    ),
    (
      ["--config.algorithm.beta=1"],
      "config.algorithm has no key 'beta'; allowed are clip_high",
    ),
    (["--config.nothing.here=1"], "config has no key 'nothing'; allowed are algorithm"),
    (["--config.steps=many"], "many"),
    (
      ["--config=nowhere.py"],
      "config file nowhere.py does not exist; .*gmpo.py, grpo.py",
    ),
    (["--config.reward=x"], "--config.reward can't be set on the command line"),
    (
      ["--config.sampling.prompts_per_step=6", "--config.learner.microbatches=4"],
      "sampling.prompts_per_step is 6; it must be a multiple",
    ),
    (
      ["--config=experiments/configs/rloo.py", "--config.sampling.group_size=1"],
      "group size is 1; RLOO",
    ),
    (
      ["--config.sampling.max_prompt_tokens=4"],
      "has 9 tokens; max_prompt_tokens allows 4",
    ),
    (["--config.algorithm.clip_low=-1.0"], "clip_low is -1.0"),
    (["--config.mesh.model=3"], "mesh.model is 3; their product must divide"),
    (["--config.task.digits=9"], "digits is 9; it must be from 1 to 4"),
    (["stray"], "unexpected argument 'stray'"),
  ],
)
def test_bad_settings_get_a_message(call, tmp_path, arguments, told):
  done = call("train", f"--workdir={tmp_path / 'run'}", *arguments)
  assert done.returncode != 0 and re.search(told, done.stderr), done.stderr[-2000:]
  assert "Traceback" not in done.stderr


def test_the_run_of_the_readme(call, tmp_path):
  blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
  (reward,) = (block for block in blocks if "def right_and_brief" in block)
  (config,) = (block for block in blocks if "def get_config" in block)
  (tmp_path / "brief.py").write_text(reward)
  (tmp_path / "mine.py").write_text(config.replace("sums.jsonl", f"{tmp_path}/sums.jsonl"))
  rows = [{"question": f"{i}+7=", "answer": str(i + 7)} for i in range(99)]
  (tmp_path / "sums.jsonl").write_text("\n".join(map(json.dumps, rows)))
  small = [x for x in SMALL if "task" not in x and "supervised" not in x]
  run = [f"--workdir={tmp_path}/run", f"--config={tmp_path}/mine.py", *small]
  changes = ["--config.algorithm.surrogate.clip_high=0.28", "--config.steps=1"]
  changes.append("--config.sampling.max_prompt_tokens=6")
  done = call("train", *run, *changes, path=tmp_path)
  assert done.returncode == 0, done.stderr[-2000:]
  (row,) = read_lines(tmp_path / "run" / "metrics.jsonl")[1:]
  assert row["reward/mean"] < 0 < row["loss/policy"] ** 2
  done = call("evaluate", f"--workdir={tmp_path}/run", "--problems=0", path=tmp_path)
  assert done.returncode == 0 and ", step 1 of 1: 0.0% of" in done.stdout, done.stderr
  done = call("evaluate", f"--workdir={tmp_path}/run")
  assert done.returncode == 2 and "No module named 'brief'" in done.stderr


def test_a_refused_command_can_be_mended(call, tmp_path):
  bad = [
    f"--workdir={tmp_path}/run",
    *SMALL,
    "--config.steps=0",
    "--config.supervised.steps=0",
  ]
  done = call("train", *bad, "--config.sampling.group_size=1")
  assert done.returncode == 2 and "group size is 1" in done.stderr
  assert not (tmp_path / "run").exists()
  assert call("train", *bad).returncode == 0


def test_supervised_fine_tuning_alone_tells_where_it_arrived(call, tmp_path):
  sft = ["--config=experiments/configs/sft.py", f"--workdir={tmp_path}/run", *SMALL]
  few = ["--config.supervised.steps=4", "--config.supervised.eval_every=2"]
  few += ["--config.supervised.row_tokens=44", "--config.steps=0"]
  done = call("train", *sft, *few)
  assert done.returncode == 0, done.stderr[-2000:]
  assert re.search(r"accuracy: [\d.]+% after 4 supervised steps\n\nsamples:\n", done.stdout)
  rows = read_lines(tmp_path / "run" / "supervised.jsonl")
  assert [row["step"] for row in rows if "eval/accuracy" in row] == [0, 2, 4]
  assert min(row["demonstrations"] for row in rows[1:]) > 16  # more than one in a row
  assert (tmp_path / "run" / "report" / "supervised.png").exists()
