"""The plan of a run as a table, and as JSON."""

from collections.abc import Mapping

from experiments.plan import arithmetic
from experiments.plan.arithmetic import Job
from experiments.plan.compiled import Program
from experiments.plan.machines import Machine

_GIB = 2**30


def plan(job: Job, devices: Machine) -> dict:
  """Plans a run.

  Args:
    job: the run and its mesh.
    devices: the devices.

  Returns:
    Bytes, operations and collectives of a device, and whether the run fits; None if that is
    not known.
  """
  update, sampling = arithmetic.update_memory(job), arithmetic.sampling_memory(job)
  limit = devices.kind.memory
  need = max(arithmetic.total(update), arithmetic.total(sampling))
  return {
    "topology": devices.name,
    "mesh": dict(job.mesh.shape),
    "memory": {"update": update, "sampling": sampling, "device": limit},
    "operations": arithmetic.operations(job),
    "collectives": arithmetic.collective_bytes(job),
    "fits": None if limit is None else need <= limit,
  }


def text(plan: Mapping) -> str:
  """Renders a plan as a table."""
  mesh = " x ".join(f"{name} {size}" for name, size in plan["mesh"].items())
  lines = [f"{plan['topology']}: {mesh}", ""]
  limit = plan["memory"]["device"]
  of = f" of {limit / _GIB:.1f}" if limit else ""
  for name in ("update", "sampling"):
    parts = plan["memory"][name]
    lines.append(f"{name}, GiB on a device: {arithmetic.total(parts) / _GIB:.2f}{of}")
    lines += _rows(parts)
  sent = plan["collectives"]
  lines.append(f"collectives of an update, GiB: {arithmetic.total(sent) / _GIB:.2f}")
  lines += _rows(sent)
  lines.append("operations of a step on a device, 10^12:")
  lines += [f"  {value / 1e12:10.2f}  {name}" for name, value in plan["operations"].items()]
  return "\n".join(lines)


def _rows(parts: Mapping[str, float]) -> list[str]:
  ordered = sorted(parts.items(), key=lambda item: -item[1])
  return [f"  {value / _GIB:10.3f}  {name}" for name, value in ordered if value]


def compiled_row(program: Program) -> dict:
  """Numbers that the compiler reports for a program, for JSON."""
  once = [x for x in program.collectives if not x.in_open_loop]
  token = [x for x in program.collectives if x.in_open_loop]
  return {
    "peak": program.peak,
    "collectives": sum(x.total for x in once),
    "collectives_a_token": sum(x.total for x in token),
    "seconds": program.seconds,
  }


def compiled_text(program: Program) -> str:
  """Describes a compiled program in a sentence."""
  row = compiled_row(program)
  sentence = (
    f"compiled {program.name}: peak {row['peak'] / _GIB:.2f} GiB, collectives "
    f"{row['collectives'] / _GIB:.2f} GiB"
  )
  if program.name == "sampling":
    sentence += f", and {row['collectives_a_token'] / _GIB:.4f} GiB for each token"
  return f"{sentence}; compiled in {row['seconds']:.0f} s"
