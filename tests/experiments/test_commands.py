"""Commands in a new folder: a rejected one that is then fixed, and SFT alone."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.config_files import read_config_file
from pgax.errors import UserError
from pgax.runs.json_lines import read_lines
from tests.experiments.small import SMALL
from tests.forked import last_of_each


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
      "config file nowhere.py does not exist; .*countdown.py, grpo.py",
    ),
    (["--config.task=x"], "--config.task can't be set on the command line"),
    (["--config.reward=x"], "--config.reward=x; it must be of type module:name"),
    (["--algorithm=grop"], "--algorithm is 'grop'; allowed are reinforce, rloo"),
    (["--algorithm=rloo", "--config.algorithm.clip_low=1"], "no key 'clip_low'; allowed"),
    (
      ["--config.sampling.prompts_per_step=6", "--config.learner.microbatches=400"],
      "learner.microbatches is 400; an optimizer step has .* completions",
    ),
    (
      ["--algorithm=rloo", "--config.sampling.group_size=1"],
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
    (["--config=README.md"], "config file README.md:[0-9]+ has a syntax error, "),
    (["--config.max_tokens=5"], "config has no key 'max_tokens'; allowed are"),
  ],
)
def test_bad_settings_get_a_message(call, tmp_path, arguments, metrics):
  done = call("train", f"--workdir={tmp_path / 'run'}", *arguments)
  assert done.returncode != 0 and re.search(metrics, done.stderr), done.stderr[-2000:]
  assert "Traceback" not in done.stderr


def _failing(text):
  return f"def get_config():\n  {text}\n"


# Config files, and the line that each is reported with.
FILES = {
  "def get_config(:\n": ":1 has a syntax error, .*: def get_config",
  "\n\nimport no_such_module\n": ":3: ModuleNotFoundError: .*'no_such_module'",
  "from pgax.algorithms import no_such_name\n": ":1: ImportError: .* 'no_such_name'",
  "\nx = 1 / 0\n": ":2: ZeroDivisionError: division by zero",
  "import sys\nsys.exit(3)\n": ":2: SystemExit: 3",
  "x = 1\n": "has no function get_config",
  "get_config = 3\n": "has no function get_config",
  "def get_config(size):\n  pass\n": "TypeError: get_config.. missing 1 required",
  _failing("import no_such_module"): ":2: ModuleNotFoundError: No module named",
  _failing("raise KeyError('a\\nb')"): r":2: KeyError: 'a\\nb'",
  _failing("return {'steps': 1}"): "returned a dict; it must return a RunConfig",
  _failing("return None"): "returned a NoneType; it must",
}


@pytest.mark.parametrize("text", FILES)
def test_a_bad_config_file_is_reported_with_its_line(tmp_path, text):
  path = tmp_path / "config.py"
  path.write_text(text)
  with pytest.raises(UserError, match=FILES[text]) as error:
    read_config_file(str(path))()
  assert str(path) in str(error.value) and "\n" not in str(error.value)


def test_a_syntax_error_of_an_imported_file_names_both(tmp_path, monkeypatch):
  (tmp_path / "broken_module.py").write_text("x = = 1\n")
  (tmp_path / "config.py").write_text("import broken_module\n")
  monkeypatch.syspath_prepend(tmp_path)
  with pytest.raises(UserError, match=r"config.py imports .*broken_module.py:1 has"):
    read_config_file(str(tmp_path / "config.py"))


@pytest.mark.parametrize("program", ["train", "evaluate", "solve_rates", "train_reward"])
def test_every_program_reports_a_bad_config_file(call, tmp_path, program):
  path = tmp_path / "config.py"
  path.write_text(_failing("return {}"))
  done = call(program, f"--workdir={tmp_path}", f"--config={path}", "--output=x")
  assert done.returncode == 2 and "Traceback" not in done.stderr
  assert done.stderr.startswith(
    f"error: get_config() of config file {path} returned a dict"
  )


@pytest.mark.parametrize(
  ("program", "name"),
  [
    ("train", "config.steps"),
    ("evaluate", "problems"),
    ("sample", "seed"),
    ("compare", "presets"),
    ("prepare_gsm8k", "source"),
  ],
)
def test_a_flag_given_twice_is_rejected(call, tmp_path, program, name):
  done = call(program, f"--workdir={tmp_path}/run", f"--{name}=1", f"-{name}=2")
  assert done.returncode == 2 and "Traceback" not in done.stderr
  assert done.stderr == f"error: --{name} is given twice, as '1' and '2'; give it once\n"


@pytest.mark.parametrize(
  ("program", "argument", "message"),
  [
    ("compare", "--presets=", "--presets is empty; allowed are reinforce, rloo"),
    ("compare", "--workdir=", "--workdir is empty; give a folder"),
    ("reproductions.tpo.tabular", "--workdir=FILE/x", "can't be used: Not a directory"),
  ],
)
def test_what_is_empty_or_no_folder(call, tmp_path, program, argument, message):
  (tmp_path / "file").touch()
  given = [argument.replace("FILE", str(tmp_path / "file"))]
  if "workdir" not in argument:
    given.append(f"--workdir={tmp_path}/run")
  done = call(program, *given)
  assert done.returncode == 2 and "Traceback" not in done.stderr
  assert message in done.stderr


@pytest.mark.parametrize("program", ["train", "evaluate"])
def test_a_flag_file_that_does_not_exist(call, tmp_path, program):
  done = call(program, f"--workdir={tmp_path}/run", f"--flagfile={tmp_path}/none")
  assert done.returncode == 2 and "Traceback" not in done.stderr
  assert "Unable to open flagfile" in done.stderr
  assert not (tmp_path / "run").exists()


def test_text_that_the_locale_does_not_have_is_rejected(tmp_path):
  # The folder's name is in UTF-8, which this interpreter is told not to expect.
  done = subprocess.run(
    [sys.executable, "-m", "experiments.sample", f"--workdir={tmp_path}/gr\u00f6\u00dfe"],
    env=os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    cwd=Path(__file__).parents[2],
    capture_output=True,
    text=True,
    check=False,
  )
  assert done.returncode == 2 and "Traceback" not in done.stderr
  assert "is not text in the encoding of this locale" in done.stderr
  assert "set PYTHONUTF8=1" in done.stderr


def test_a_rejected_command_can_be_fixed(call, tmp_path):
  bad = last_of_each(
    f"--workdir={tmp_path}/run",
    *SMALL,
    "--config.steps=0",
    "--config.supervised.steps=0",
  )
  done = call("train", *last_of_each(*bad, "--config.sampling.group_size=1"))
  assert done.returncode == 2 and "group size is 1" in done.stderr
  assert not (tmp_path / "run").exists()
  assert call("train", *bad).returncode == 0


def test_supervised_fine_tuning_alone_tells_where_it_arrived(call, tmp_path):
  sft = ["--config=experiments/configs/sft.py", f"--workdir={tmp_path}/run", *SMALL]
  few = ["--config.supervised.steps=4", "--config.supervised.eval_every=2"]
  few += ["--config.supervised.row_tokens=44", "--config.steps=0"]
  done = call("train", *last_of_each(*sft, *few))
  assert done.returncode == 0, done.stderr[-2000:]
  assert re.search(r"accuracy: [\d.]+% after 4 supervised steps\n\nsamples:\n", done.stdout)
  rows = read_lines(tmp_path / "run" / "supervised.jsonl")
  assert [row["step"] for row in rows if "eval/accuracy" in row] == [0, 2, 4]
  assert min(row["demonstrations"] for row in rows[1:]) > 16  # more than one in a row
  assert (tmp_path / "run" / "report" / "supervised.png").exists()


@pytest.mark.parametrize("program", ["train", "train_reward", "evaluate", "solve_rates"])
def test_processes_are_named_by_three_flags(call, tmp_path, program):
  output = f"--output={tmp_path}/rates" if program == "solve_rates" else "--logtostderr"
  flags = f"--workdir={tmp_path}/run", output, "--num_processes=2"
  done = call(program, *flags)
  assert done.returncode == 2 and "Traceback" not in done.stderr
  assert "--coordinator is None, --num_processes is 2 and --process_id" in done.stderr
