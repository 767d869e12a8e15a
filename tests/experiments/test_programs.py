"""The programs as a user starts them: in processes of their own, killed and misused.

What is trained, killed and interrupted is started by the interpreter; most others are
forked from a process that has imported the libraries (see `forked`).
"""

import dataclasses
import json
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

from experiments.checkpoint import in_words
from pgax.data.solve_rates import read_solve_rates
from pgax.runs.json_lines import read_lines
from pgax.tasks import addition
from pgax.training import Progress, SupervisedConfig
from pgax.training.policy import load_policy
from pgax.training.saved import saved_run
from tests import tiny
from tests.experiments.small import SMALL
from tests.forked import last_of_each

ROOT = Path(__file__).parents[2]


def command(program, *arguments):
  return [sys.executable, "-m", f"experiments.{program}", *map(str, arguments)]


def params(workdir):
  policy = load_policy(saved_run(workdir), workdir)
  return jax.device_get(policy.params)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
  workdir = tmp_path_factory.mktemp("runs") / "whole"
  arguments = command("train", f"--workdir={workdir}", *SMALL)
  done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, check=False)
  assert done.returncode == 0, done.stderr[-3000:]
  return workdir, done


@pytest.mark.slow
def test_a_reward_model_is_trained_exported_and_used(call, tmp_path):
  sums = ["--config.data.digits=2", "--config.steps=4", "--config.eval_pairs=32"]
  for _ in range(2):  # the second time there is nothing left to do
    done = call("train_reward", f"--workdir={tmp_path / 'pairs'}", *sums)
    assert done.returncode == 0, done.stderr[-3000:]
    assert re.search(r"accuracy on held-out pairs: [\d.]+%", done.stdout)
  model = f"--config.reward_model.path={tmp_path / 'pairs' / 'export'}"
  short = ["--config.steps=1", "--config.supervised.steps=2", "--config.lora.rank=2"]
  done = call(
    "train", *last_of_each(f"--workdir={tmp_path / 'run'}", *SMALL, *short, model)
  )
  assert done.returncode == 0, done.stderr[-3000:]
  (row,) = read_lines(tmp_path / "run" / "metrics.jsonl")[1:]
  assert "reward/model" in row and "reward/function" in row
  done = call("train_reward", f"--workdir={tmp_path / 'x'}", "--config.data.digit=2")
  assert done.returncode == 2 and "config.data has no key 'digit'" in done.stderr


def test_training_tells_where_it_started_and_arrived(trained):
  workdir, done = trained
  assert re.search(
    r"held-out accuracy: [\d.]+% before reinforcement, [\d.]+% after 30 steps",
    done.stdout,
  )
  assert "before:" in done.stdout and "after:" in done.stdout
  shown = [s for s in read_lines(workdir / "samples.jsonl") if s["split"] == "held_out"]
  marks = ["right" if s["right"] else f"wrong, it is {s['ground_truth']}" for s in shown]
  assert re.findall(r"  \[(.+)\]", done.stdout) == marks[:4] + marks[-8:][:4]
  assert f"report: {workdir}/report/index.html" in done.stdout
  assert "supervised: 100%" in done.stderr and "grpo: 100%" in done.stderr
  assert "Traceback" not in done.stderr and "WARNING" not in done.stderr
  for name in (
    "config.json",
    "metrics.jsonl",
    "samples.jsonl",
    "checkpoints",
    "tokenizer",
    "tensorboard",
    "report/curves.png",
  ):
    assert (workdir / name).exists(), name


def _wait_for(path, rows, process, errors):
  """Waits until the file has that many rows; fails if the process ends first."""
  while len(read_lines(path)) < rows:
    assert process.poll() is None, errors.read_text()[-3000:]
    time.sleep(0.02)


# tests/training/test_loop.py interrupts runs in this process, at four moments.
@pytest.mark.parametrize(
  "number", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.slow)]
)
def test_stopped_half_way_and_given_again(trained, call, tmp_path, number):
  workdir = tmp_path / "run"
  arguments = command("train", f"--workdir={workdir}", *SMALL)
  out, errors = tmp_path / "out", tmp_path / "errors"
  with (  # files and not pipes, which progress bars fill if nobody reads along
    out.open("w") as stdout,
    errors.open("w") as stderr,
    subprocess.Popen(arguments, cwd=ROOT, stdout=stdout, stderr=stderr) as process,
  ):
    _wait_for(workdir / "metrics.jsonl", 12, process, errors)
    process.send_signal(number)
  assert len(read_lines(workdir / "metrics.jsonl")) < 31  # it was really stopped half-way
  if number == signal.SIGKILL:
    assert process.returncode == -signal.SIGKILL
  else:
    assert process.returncode == 130 and "Traceback" not in errors.read_text()
    metrics = r"Interrupted at step \d+ of 30; a checkpoint is saved"
    assert re.search(metrics, out.read_text())
  done = call("train", f"--workdir={workdir}", *SMALL)
  assert done.returncode == 0, done.stderr[-3000:]
  ours, theirs = params(workdir), params(trained[0])
  for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
    np.testing.assert_array_equal(a, b)
  steps = [row["step"] for row in read_lines(workdir / "metrics.jsonl")]
  assert steps == list(range(31))


def test_evaluate(trained, call, tmp_path):
  # What is said on the schedule is said again of the last checkpoint.
  last, output = read_lines(trained[0] / "metrics.jsonl")[-1], tmp_path / "found.json"
  settings = [f"--workdir={trained[0]}", "--problems=8", "--batch_size=3"]
  done = call("evaluate", *settings, f"--output={output}")
  assert done.returncode == 0, done.stderr[-3000:]
  line, titles, *table, metrics = done.stdout.splitlines()
  assert "of 8 problems of grpo/held_out; completions of each: one, greedy" in line
  assert output.read_text() == metrics + "\n"
  metrics = json.loads(metrics)
  assert (metrics["problems"], metrics["step"], metrics["samples"]) == (8, 30, 1)
  assert metrics["stage"] == "reinforcement"
  scheduled = {x.removeprefix("eval/"): y for x, y in last.items() if x[:5] == "eval/"}
  result = metrics["estimates"]
  assert {"accuracy", "pass@1", "length", "truncated", "reward/format"} < result.keys()
  for name, estimate in result.items():
    assert estimate["mean"] == pytest.approx(scheduled[name], rel=1e-6), name
    assert estimate["low"] <= estimate["mean"] <= estimate["high"]
  rows = {row.split()[0]: [float(x) for x in row.split()[1:]] for row in table}
  assert titles.split() == ["mean", "95", "%", "interval"] and list(rows) == list(result)
  for name, numbers in rows.items():
    assert numbers == pytest.approx(list(result[name].values()), abs=6e-5)


def test_evaluate_on_a_file_with_several_samples(trained, call, tmp_path):
  # It has learned its few training problems by heart, and is not at 0 for all that.
  known = [addition(digits=1).train[i] for i in range(41)]
  for name, some in (("train", known[:1]), ("held_out", known[1:])):
    rows = [{"sum": x.prompt, "is": x.ground_truth} for x in some]
    path = tmp_path / f"{name}.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
  config, output = tmp_path / "sums.py", tmp_path / "found.json"
  config.write_text(FILE_CONFIG.format(folder=tmp_path))
  settings = [f"--workdir={trained[0]}", f"--config={config}", f"--output={output}"]
  settings += ["--samples=4", "--temperature=1.0", "--problems=0", "--seed=3"]
  done = call("evaluate", *settings)
  assert done.returncode == 0, done.stderr[-3000:]
  metrics = json.loads(done.stdout.splitlines()[-1])
  assert metrics == json.loads(output.read_text()) and metrics["data/held_out"] == 40
  line = done.stdout.splitlines()[0]
  assert "of 40 problems of sums/held_out; completions of each: 4 at tempera" in line
  mean = {name: estimate["mean"] for name, estimate in metrics["estimates"].items()}
  assert 0.2 < mean["accuracy"] == pytest.approx(mean["pass@1"])
  assert mean["pass@1"] < mean["pass@2"] < mean["pass@4"] <= 1
  # Of two that disagree one is drawn: they are right as often as one alone.
  assert mean["majority@2"] == pytest.approx(mean["pass@1"], abs=0.02)
  assert 0.2 < mean["majority@4"] <= mean["pass@4"]
  assert 5 < mean["length"] <= 17 and mean["truncated"] < 0.5


FILE_CONFIG = """
from pgax import algorithms, data, rewards
from pgax.training import RunConfig, SamplingConfig, entry


def get_config():
  parse = entry(data.Fields, prompt="sum", ground_truth="is")
  files = [
    entry(data.json_lines, path="{folder}/" + x) for x in ("train.jsonl", "held_out.jsonl")
  ]
  task = entry(data.from_rows, train=files[0], held_out=files[1], parse=parse)
  return RunConfig(
    name="sums",
    task=task,
    reward=rewards.final_answer,
    algorithm=entry(algorithms.grpo),
    sampling=SamplingConfig(max_prompt_tokens=9, max_completion_tokens=17),
  )
"""


def test_solve_rates(trained, call, tmp_path):
  path = tmp_path / "rates.jsonl"
  settings = [f"--workdir={trained[0]}", f"--output={path}", "--problems=6", "--samples=4"]
  done = call("solve_rates", *settings)
  assert done.returncode == 0, done.stderr[-3000:]
  metrics = re.search(
    r"30 of 30: of 6 problems (\d) were never solved, (\d) sometimes, (\d) always, and 0",
    done.stdout,
  )
  rates = read_solve_rates(path)
  assert len(rates) == sum(map(int, metrics.groups())) == 6
  assert sum(rate == 1 for rate in rates.values()) == int(metrics[3])


def test_sample(trained, call):
  arguments = (f"--workdir={trained[0]}", "--group=3", "--seed=1")
  done = call("sample", *arguments, text="1+2=\n3+4=\n12345+1=\n")
  lines = done.stdout.splitlines()
  assert len(lines) == 6
  for line in lines:
    assert re.match(r"log-prob +-?[\d.]+ over \d+ tokens: ", line)
  assert done.returncode == 2 and "prompt '12345+1=' has 9 tokens" in done.stderr
  again = call("sample", *arguments, text="1+2=\n")
  assert again.stdout.splitlines() == lines[:3] and again.returncode == 0
  greedy = call("sample", *arguments, "--temperature=0", "--prompt=1+2=")
  assert len(set(greedy.stdout.splitlines())) == 1


@pytest.mark.slow
def test_a_run_can_be_moved_away_from_its_problems(call, tmp_path):
  rows = [{"question": f"{i}+1", "answer": f"#### {i + 1}"} for i in range(4)]
  for name, some in (("train", rows[:2]), ("test", rows[2:])):
    (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in some))
  paths = [
    f"--config.task.train_path={tmp_path}/train.jsonl",
    f"--config.task.held_out_path={tmp_path}/test.jsonl",
  ]
  small = ["--config.model.embed_dim=16", "--config.model.num_layers=1"]
  limits = [
    "--config.sampling.max_prompt_tokens=8",
    "--config.sampling.max_completion_tokens=8",
  ]
  file = "--config=experiments/configs/gsm8k.py"
  done = call("train", file, f"--workdir={tmp_path}/run", *paths, *small, *limits)
  assert done.returncode == 0, done.stderr[-3000:]
  (tmp_path / "train.jsonl").unlink()
  done = call("sample", f"--workdir={tmp_path}/run", "--prompt=1+1\\n", "--group=1")
  assert done.returncode == 0 and "over" in done.stdout, done.stderr[-3000:]
  done = call("evaluate", f"--workdir={tmp_path}/run")
  assert done.returncode == 2 and "train.jsonl can't be read" in done.stderr


def test_gsm8k_goes_through_everything(trained, call, tmp_path):
  workdir, file = tmp_path / "gsm8k", "experiments/configs/gsm8k.py"
  rows, long = tmp_path / "rows.jsonl", {"question": "x" * 1024, "answer": "#### 1"}
  lengths = ["--config.sampling.max_prompt_tokens=480"]  # those of the excerpt
  whole = (ROOT / "tests" / "data" / "gsm8k" / "train.jsonl").read_text()
  rows.write_text(f"{whole}{{}}\n{json.dumps(long)}\n")  # a bad row, and a long prompt
  done = call(
    "train",
    f"--config={file}",
    f"--config.task.train_path={rows}",
    "--config.task.max_bad_rows=1",
    "--config.data.overlong_prompts=drop",
    f"--workdir={workdir}",
    "--config.evaluation.problems=4",
    "--config.sampling.prompts_per_step=2",
    *lengths,
    "--config.sampling.max_completion_tokens=840",
    "--config.learner.length_buckets=1",
    "--config.model.embed_dim=16",
    "--config.model.num_layers=1",
  )
  assert done.returncode == 0, done.stderr[-3000:]
  assert f"1 bad rows were skipped:\n  {rows}:26: field 'question' is" in done.stdout
  assert "left out because their prompts are over the limit: 1\n" in done.stdout
  before, row = read_lines(workdir / "metrics.jsonl")
  assert (before["data/train"], before["data/dropped_prompts"]) == (25, 1)
  assert row["step"] == 1 and row["reward/mean"] == 0 and np.isfinite(row["loss"])
  page = (workdir / "report" / "index.html").read_text()
  first = read_lines(workdir / "samples.jsonl")[0]
  assert len(first["prompt"]) > 100 and first["prompt"][:30] in page
  # The checkpoint of another task reads the same problems.
  done = call(
    "evaluate",
    f"--workdir={trained[0]}",
    f"--config={file}",
    "--problems=3",
    *lengths,
    "--config.sampling.max_completion_tokens=32",
  )
  assert done.returncode == 0, done.stderr[-3000:]
  assert "0.0% of 3 problems of gsm8k/held_out" in done.stdout
  # It continues to the limit of that config, which is not the one of its training.
  metrics = json.loads(done.stdout.splitlines()[-1])["estimates"]
  assert (metrics["length"]["mean"], metrics["truncated"]["mean"]) == (32, 1)


def test_bad_folders_get_a_message(trained, call, tmp_path):
  (tmp_path / "precious").write_text("")
  cases = [
    (("train", f"--workdir={tmp_path}", *SMALL), "holds precious but no config.json"),
    (("train", f"--workdir={tmp_path}/precious", *SMALL), "can't be written"),
    (
      ("train", f"--workdir={trained[0]}", *SMALL, "--config.seed=1"),
      "seed is 1, but the run in .* has 0",
    ),
    (("train",), "--workdir"),
    (("evaluate", f"--workdir={tmp_path}"), "has no config.json"),
    (
      ("evaluate", "--workdir=x", f"--output={tmp_path}/no/x"),
      "is not a file in an",
    ),
    (("evaluate", "--workdir=x", "--samples=2"), "--samples is 2 and --temperature is 0"),
    (
      ("solve_rates", "--workdir=x", f"--output={tmp_path}"),
      "is not a file in an",
    ),
    (("sample", f"--workdir={tmp_path}"), "has no config.json"),
  ]
  for (program, *arguments), metrics in cases:
    done = call(program, *arguments)
    assert done.returncode != 0 and re.search(metrics, done.stderr), done.stderr[-2000:]
    assert "Traceback" not in done.stderr


def test_prompts_are_rendered_as_those_of_the_run(trained, call, tmp_path):
  folder = tmp_path / "copy"
  shutil.copytree(trained[0], folder)
  config = json.loads((folder / "config.json").read_text())
  config["data"]["chat_template"] = True  # which its tokenizer has none of
  (folder / "config.json").write_text(json.dumps(config))
  for program in ("evaluate", "solve_rates"):
    other = ["--config=experiments/configs/grpo.py", f"--output={tmp_path}/x"]
    done = call(program, f"--workdir={folder}", *other)
    assert done.returncode == 2 and "has no chat template" in done.stderr, done.stderr


def test_progress_in_words():
  run = tiny.run_config(supervised=SupervisedConfig(steps=7), steps=5)
  for stage, step, words in (
    ("supervised", 0, "supervised step 0 of 7"),
    ("supervised", 4, "supervised step 4 of 7"),
    ("reinforcement", 2, "step 2 of 5"),
  ):
    assert in_words(Progress(stage, step), run) == words
  alone = dataclasses.replace(run, steps=0)
  assert in_words(Progress("supervised", 6), alone) == "supervised step 6 of 7"
  assert in_words(Progress("reinforcement", 0), alone) == "supervised step 7 of 7"
  nothing = dataclasses.replace(alone, supervised=SupervisedConfig(steps=0))
  assert in_words(Progress("reinforcement", 0), nothing) == "step 0"


def test_a_checkpoint_of_another_shape(trained, call, tmp_path):
  folder = tmp_path / "copy"
  shutil.copytree(trained[0], folder)
  config = json.loads((folder / "config.json").read_text())
  config["model"]["mlp_dim"] = 64
  (folder / "config.json").write_text(json.dumps(config))
  done = call("evaluate", f"--workdir={folder}")
  assert done.returncode == 2 and "does not fit the configuration" in done.stderr
  assert "Traceback" not in done.stderr
