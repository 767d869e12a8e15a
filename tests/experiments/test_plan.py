"""Plans of runs, against the figures of compilers."""

import dataclasses
import importlib.util
import json
import os
import subprocess
import sys

import pytest

from experiments.configs import grpo
from experiments.plan import arithmetic, fits, report
from experiments.plan.machines import machine
from experiments.plan.shapes import SHAPES
from pgax import algorithms
from pgax.errors import UserError
from pgax.training import build, with_settings
from tests.devices import ROOT

GIB = 2**30
# Peak and collectives of an update in GiB, as compiled by libtpu 0.0.52 for 32 prompts of
# 512 tokens with 8 completions of 1,024.
COMPILED = [
  ("qwen2.5-0.5b", "v5e:4x4", (16, 1), {"microbatches": 1}, 4.864, 8.126),
  (
    "qwen2.5-0.5b",
    "v5e:4x4",
    (16, 1),
    {"microbatches": 4, "logit_chunk": 32},
    2.267,
    None,
  ),
  ("qwen2.5-7b", "v5e:8x8", (16, 4), {"microbatches": 1}, 7.581, 56.367),
]


def job(model, topology, mesh, learner=None, **sampling):
  lengths = {"max_prompt_tokens": 512, "max_completion_tokens": 1024}
  sampling = {"prompts_per_step": 32, "group_size": 8, **lengths, **sampling}
  learner = {"length_buckets": 1, **(learner or {})}
  changes = {"mesh.fsdp": mesh[0], "mesh.model": mesh[1], "algorithm": algorithms.grpo()}
  changes |= {f"learner.{name}": value for name, value in learner.items()}
  changes |= {f"sampling.{name}": value for name, value in sampling.items()}
  run = build(with_settings(grpo.get_config(), changes), with_task=False)
  devices = machine(topology)
  model = arithmetic.with_dtypes(SHAPES[model], devices.kind.platform)
  run = dataclasses.replace(run, model=model)
  return arithmetic.Job(run, devices.abstract_mesh(run.mesh)), devices


@pytest.mark.parametrize(("model", "topology", "mesh", "learner", "peak", "sent"), COMPILED)
def test_arithmetic_is_near_the_compiler(model, topology, mesh, learner, peak, sent):
  planned, devices = job(model, topology, mesh, learner)
  memory = arithmetic.total(arithmetic.update_memory(planned)) / GIB
  assert memory == pytest.approx(peak, rel=0.15)
  if sent:
    expected = arithmetic.total(arithmetic.collective_bytes(planned)) / GIB
    assert expected == pytest.approx(sent, rel=0.15)
  assert report.plan(planned, devices)["fits"]
  assert "It fits" in fits.sentences(planned, devices.kind.memory)


def test_operations_are_two_a_parameter_and_token():
  planned, devices = job("qwen2.5-0.5b", "v5e:4x4", (16, 1))
  tokens = 32 * (8 * 1024 + 512)
  once = 2 * 494e6 * tokens / devices.count
  operations = arithmetic.operations(planned)
  assert operations["sampling"] == pytest.approx(once, rel=0.2)
  # The reference, the policy, that again in the backward pass, and the backward pass.
  assert operations["update"] == pytest.approx(5 * operations["sampling"])


def test_a_run_that_does_not_fit_says_what_would():
  planned, devices = job("qwen2.5-7b", "v5e:4x4", (16, 1))
  limit = devices.kind.memory
  assert not report.plan(planned, devices)["fits"]
  sentence = fits.sentences(planned, limit)
  assert sentence.startswith("It does not fit. It would")
  settings = dict(x.split("=") for x in sentence.rstrip(".").split() if "=" in x)
  mesh = [int(settings[f"--config.mesh.{name}"]) for name in ("fsdp", "model")]
  count = int(sentence.split(" on ")[1].split()[0]) if " on " in sentence else 16
  parts = int(settings["--config.learner.microbatches"])
  better, _ = job("qwen2.5-7b", f"v5e:{count}", mesh, {"microbatches": parts})
  assert fits.need(better) <= limit
  tiny_memory = fits.sentences(planned, 2**20)
  assert "on up to 4096 of these devices" in tiny_memory


@pytest.mark.parametrize(
  ("topology", "mesh", "fits_on"),
  [
    ("h100:8", (1, 1), "It would with"),  # without fsdp every device has all of the state
    ("h100:3", (3, 1), "It would on 4 of these"),  # no power of two times 3 divides widths
    ("v5e:64x128", (1, 1), "It would with"),  # more than are tried of other numbers
  ],
)
def test_what_would_fit_is_found_from_any_number_of_devices(topology, mesh, fits_on):
  planned, devices = job("qwen2.5-7b", topology, mesh)
  assert fits_on in fits.sentences(planned, devices.kind.memory)


def test_parameters_of_earlier_steps_are_counted():
  without, _ = job("qwen2.5-0.5b", "v5e:4x4", (16, 1))
  ahead, _ = job("qwen2.5-0.5b", "v5e:4x4", (16, 1), lag=2)
  for memory in (arithmetic.update_memory, arithmetic.sampling_memory):
    added = arithmetic.total(memory(ahead)) - arithmetic.total(memory(without))
    assert added == 3 * arithmetic.update_memory(without)["parameters"]


def test_a_critic_is_updated_like_the_policy():
  planned, _ = job("qwen2.5-0.5b", "v5e:4x4", (16, 1))
  algorithm = algorithms.ppo(epochs=1, minibatches=1)
  config = dataclasses.replace(planned.config, algorithm=algorithm)
  update = arithmetic.operations(planned)["update"]
  with_critic = arithmetic.operations(arithmetic.Job(config, planned.mesh))["update"]
  assert with_critic > 1.9 * update


def test_what_fills_up_a_step_is_counted():
  full, _ = job("qwen2.5-0.5b", "v5e:4x4", (16, 1), prompts_per_step=16)
  filled, _ = job("qwen2.5-0.5b", "v5e:4x4", (16, 1), prompts_per_step=3)
  assert arithmetic.operations(filled) == arithmetic.operations(full)


@pytest.mark.parametrize(
  ("name", "message"),
  [
    ("cpu:99999999999999999999", "it must have at most 1048576 devices"),
    ("v5e", "--topology is 'v5e'; it must be a kind of device and their number"),
    ("b200:8", "Kinds are v4, v5e"),
    ("h100:0", "it must have at least one device"),
    ("v5e:4x", "it must be a kind"),
  ],
)
def test_a_topology_that_does_not_exist(name, message):
  with pytest.raises(UserError, match=message.replace("(", r"\(")):
    machine(name)


def test_a_mesh_that_is_not_the_number_of_devices():
  with pytest.raises(UserError, match="which is 16 for v5e:4x4"):
    job("qwen2.5-0.5b", "v5e:4x4", (3, 1))


def plan(*arguments, **environment):
  settings = {
    "prompts_per_step": 8,
    "group_size": 4,
    "max_prompt_tokens": 8,
    "max_completion_tokens": 16,
  }
  flags = [f"--config.sampling.{name}={value}" for name, value in settings.items()]
  return subprocess.run(
    [sys.executable, "-m", "experiments.plan", *flags, *arguments],
    cwd=ROOT,
    env=os.environ | environment,
    capture_output=True,
    text=True,
    check=False,
  )


def test_the_program_compiles_for_host_devices():
  flags = "--xla_force_host_platform_device_count=4 " + os.environ.get("XLA_FLAGS", "")
  done = plan(
    "--topology=cpu:4",
    "--config.mesh.fsdp=2",
    "--compile",
    "--json",
    XLA_FLAGS=flags,
    JAX_PLATFORMS="cpu",
  )
  assert done.returncode == 0, done.stderr
  printed = json.loads(done.stdout)
  assert printed["mesh"] == {"data": 2, "fsdp": 2, "model": 1} and printed["fits"] is None
  update, sampling = (printed["compiled"][name] for name in ("update", "sampling"))
  assert update["peak"] > 0 < sampling["collectives_a_token"]
  planned = sum(printed["collectives"].values())
  assert planned / 3 < update["collectives"] < 3 * planned


def test_compiling_without_the_devices_says_so():
  done = plan("--topology=h100:8", "--compile")
  assert done.returncode == 2
  assert "--topology is h100:8, and this machine has" in done.stderr


def test_slots_that_devices_can_not_share_are_rejected_as_by_the_run():
  done = plan("--topology=h100:8", "--config.sampling.slots=7")
  assert done.returncode == 2
  assert "sampling.slots is 7; it must be a multiple of the 8 devices" in done.stderr


@pytest.mark.skipif(
  importlib.util.find_spec("libtpu") is not None, reason="libtpu is there"
)
def test_compiling_for_tpus_without_libtpu_says_so():
  done = plan("--topology=v5e:2x2", "--compile")
  assert done.returncode == 2 and "needs libtpu" in done.stderr


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="needs libtpu")
def test_the_program_compiles_for_tpus():
  shape = {"embed_dim": 512, "mlp_dim": 2048, "vocab_size": 32000, "remat": True}
  flags = [f"--config.model.{name}={value}" for name, value in shape.items()]
  done = plan("--topology=v5e:2x2", "--config.mesh.fsdp=4", "--compile", "--json", *flags)
  assert done.returncode == 0, done.stderr
  printed = json.loads(done.stdout.splitlines()[-1])
  peak = printed["compiled"]["update"]["peak"]
  assert sum(printed["memory"]["update"].values()) == pytest.approx(peak, rel=0.15)
