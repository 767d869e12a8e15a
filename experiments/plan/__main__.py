"""Plans a run on devices that need not be there: `python -m experiments.plan`.

  python -m experiments.plan --model=qwen2.5-0.5b --topology=v5e:4x4 --config.mesh.fsdp=16 \
    --config.sampling.max_prompt_tokens=512 --config.sampling.max_completion_tokens=1024

First by arithmetic: bytes on a device by kind, operations, and what devices send each
other, with the longest completions and the largest groups that fit. `--compile` then
compiles the real train step and sampler for the devices, which for TPUs takes libtpu and a
few minutes, but no TPU. `--topology` is a kind and a number of devices: `v5e:4x4`,
`h100:8`, `cpu:8`. All settings of the run are those of `--config`; `--model` names a model
whose shape is taken instead, with `model.attention` of the config.
"""

import dataclasses
import json
import os
import sys

from absl import flags

from experiments import program
from experiments.config_flag import ConfigFlag
from experiments.plan import arithmetic, fits, report
from experiments.plan.machines import Machine, machine
from experiments.plan.shapes import SHAPES
from pgax.errors import UserError
from pgax.rollout.sampler import check_slots
from pgax.training import RunConfig, build

_CONFIG = ConfigFlag("experiments/configs/grpo.py", algorithm=True)
_TOPOLOGY = flags.DEFINE_string("topology", "cpu:1", "Kind and number of devices.")
_MODEL = flags.DEFINE_enum(
  "model", None, sorted(SHAPES), "Shape of the model instead of the config's."
)
_COMPILE = flags.DEFINE_bool("compile", False, "Compile the programs for the devices.")
_JSON = flags.DEFINE_bool("json", False, "Print a line of JSON.")


def main() -> int:
  """Prints the plan; the status is 1 if the run does not fit."""
  devices = machine(_TOPOLOGY.value)
  config = _config(devices)
  mesh = devices.abstract_mesh(config.mesh)
  check_slots(config.sampling.slots, mesh)
  try:
    job = arithmetic.Job(config, mesh)
    plan = report.plan(job, devices)
  except ValueError as error:
    raise UserError(str(error)) from None
  if not _JSON.value:
    print(report.text(plan))
    print(fits.sentences(job, devices.kind.memory))
  if _COMPILE.value:
    plan["compiled"] = _compile(config, devices)
  if _JSON.value:
    print(json.dumps(plan))
  return 0 if plan["fits"] in (True, None) else 1


def _config(devices: Machine) -> RunConfig:
  """The run's configuration, with the model and its dtypes as on the devices."""
  config = build(_CONFIG.value, with_task=False)
  model = config.model
  if _MODEL.value:
    model = dataclasses.replace(SHAPES[_MODEL.value], attention=model.attention)
  platform = devices.kind.platform
  model = arithmetic.with_dtypes(model, platform)
  return dataclasses.replace(config, model=model)


def _compile(config: RunConfig, devices: Machine) -> dict:
  """Compiles both programs and reports the compiler's numbers."""
  from experiments.plan.compiled import compile_all

  rows = {}
  for compiled in compile_all(config, devices.mesh(config.mesh)):
    rows[compiled.name] = report.compiled_row(compiled)
    if not _JSON.value:
      print(report.compiled_text(compiled))
  return rows


if __name__ == "__main__":
  if any(argument.startswith("--topology=v") for argument in sys.argv):
    # libtpu would look for TPUs, and wait for a cloud's metadata.
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
  program.run(main, config=_CONFIG)
