"""The programs of `experiments` in two processes: one of them prints and writes."""

import json

import pytest

from tests.processes import finish, start

pytestmark = pytest.mark.slow
SETTINGS = {
  "model.num_layers": 2,
  "model.embed_dim": 32,
  "model.num_heads": 4,
  "model.num_kv_heads": 2,
  "model.head_dim": 8,
  "model.mlp_dim": 48,
  "supervised.steps": 20,
  "steps": 1,
  "sampling.prompts_per_step": 8,
  "evaluation.problems": 10,
}


# What Gloo prints of its connections, between numbers. Its threads mix these pieces.
GLOO = (
  "[Gloo] Rank ",
  " is connected to ",
  " peer ranks. ",
  "Expected number of connected peer ranks is : ",
)


def without_gloo(output):
  """The lines that the program itself printed."""
  for piece in GLOO:
    output = output.replace(piece, "")
  return [line for line in output.splitlines() if line.strip(" 0123456789")]


def call(count, program, *arguments):
  """Runs a program on four devices; returns what each process printed."""
  ended = finish(start(count, 4 // count, f"experiments.{program}", *arguments))
  assert [status for status, *_ in ended] == [0] * count, [x[2][-2000:] for x in ended]
  lines = [without_gloo(out) for _, out, _ in ended]
  assert not any(lines[1:])  # the first process prints
  return lines[0]


def untimed(line):
  """The metrics of a step, without its times."""
  return {k: v for k, v in json.loads(line).items() if not k.startswith("time/")}


def test_programs_of_two_processes(tmp_path):
  run = f"--workdir={tmp_path}/run"
  printed = call(2, "train", run, *(f"--config.{x}={y}" for x, y in SETTINGS.items()))
  assert any(line.startswith("held-out accuracy") for line in printed)
  assert printed[-1] == f"report: {tmp_path}/run/report/index.html"
  sampled = "--samples=2", "--temperature=1.0", "--problems=6"
  two, one = (json.loads(call(n, "evaluate", run, *sampled)[-1]) for n in (2, 1))
  assert "majority@2" in one["estimates"] and two.keys() == one.keys()
  for name, value in one.pop("estimates").items():
    assert two["estimates"][name] == pytest.approx(value), name
  assert {name: two[name] for name in one} == one
  for count in (1, 2):
    output = f"--output={tmp_path}/rates{count}"
    call(count, "solve_rates", run, output, "--samples=2", "--problems=6")
  rates = [(tmp_path / f"rates{count}").read_text() for count in (1, 2)]
  assert rates[0] == rates[1] and rates[0].count("\n") == 7
  drawn = call(2, "sample", run, "--prompt=1+1=", "--group=2")
  assert [line.partition(" ")[0] for line in drawn] == ["log-prob"] * 2


def test_pairs_in_two_processes(tmp_path):
  settings = {x: y for x, y in SETTINGS.items() if x.startswith("model.")}
  settings |= {"steps": 4, "batch_size": 8, "eval_pairs": 10, "eval_every": 2}
  flags = [f"--config.{name}={value}" for name, value in settings.items()]
  for count in (1, 2):
    printed = call(count, "train_reward", f"--workdir={tmp_path}/{count}", *flags)
    assert printed[-1] == f"export: {tmp_path}/{count}/export"
  one, two = (
    [untimed(x) for x in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
    for name in ("1", "2")
  )
  assert len(one) == 4 and two == [pytest.approx(row, rel=1e-5) for row in one]
  files = [tmp_path / name / "export" / "model.safetensors" for name in ("1", "2")]
  assert len({file.stat().st_size for file in files}) == 1
