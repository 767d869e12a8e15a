"""Commands in a new folder: a rejected one that is then fixed, and SFT alone."""

import re

import pytest

from pgax.runs.json_lines import read_lines
from tests.experiments.small import SMALL


@pytest.mark.parametrize(
  ("arguments", "metrics"),
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
    (["--loggers=jsonl,cvs"], "there is no logger 'cvs'; allowed are csv, jsonl, mlflow"),
    (["stray"], "unexpected argument 'stray'"),
    (["--config=README.md"], "config file README.md can't be loaded: SyntaxError"),
    (["--config.max_tokens=5"], "config has no key 'max_tokens'; allowed are"),
  ],
)
def test_bad_settings_get_a_message(call, tmp_path, arguments, metrics):
  done = call("train", f"--workdir={tmp_path / 'run'}", *arguments)
  assert done.returncode != 0 and re.search(metrics, done.stderr), done.stderr[-2000:]
  assert "Traceback" not in done.stderr


def test_a_rejected_command_can_be_fixed(call, tmp_path):
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
