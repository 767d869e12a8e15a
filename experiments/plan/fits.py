"""What would fit: longer completions, larger groups, or other settings."""

import dataclasses
from collections.abc import Callable, Iterator

from jax.sharding import AbstractMesh

from experiments.plan import arithmetic
from experiments.plan.arithmetic import Job

_MOST = 2**20  # tokens or completions that are tried at most


def sentences(job: Job, limit: float | None) -> str:
  """Says what fits, or what would make the run fit.

  Args:
    job: the run and its mesh.
    limit: bytes of a device; None if that is not known.

  Returns:
    One or two sentences.
  """
  if limit is None:
    return "What the devices hold is not known."
  if need(job) > limit:
    better = next((x for x in _alternatives(job) if need(x) <= limit), None)
    if better is None:
      return (
        "It does not fit, and no other mesh or number of microbatches makes it fit: take "
        "more devices, or a smaller model"
      )
    return f"It does not fit. It would with {_described(better)}."
  sampling = job.config.sampling
  length = _largest(sampling.max_completion_tokens, lambda x: _with(job, length=x), limit)
  group = _largest(sampling.group_size, lambda x: _with(job, group=x), limit)
  return (
    f"It fits. So do {length} tokens in groups of {sampling.group_size}, and groups of "
    f"{group} with {sampling.max_completion_tokens} tokens (powers of two tried)."
  )


def need(job: Job) -> float:
  """Returns the bytes that a run needs on a device, the most of its programs."""
  parts = arithmetic.update_memory(job), arithmetic.sampling_memory(job)
  return max(map(arithmetic.total, parts))


def _with(job: Job, length: int = 0, group: int = 0) -> Job:
  sampling = job.config.sampling
  sampling = dataclasses.replace(
    sampling,
    max_completion_tokens=length or sampling.max_completion_tokens,
    group_size=group or sampling.group_size,
  )
  return Job(dataclasses.replace(job.config, sampling=sampling), job.mesh)


def _largest(start: int, make: Callable[[int], Job], limit: float) -> int:
  value = start
  while value < _MOST and need(make(2 * value)) <= limit:
    value *= 2
  return value


def _alternatives(job: Job) -> Iterator[Job]:
  """The same run with more microbatches, then on other meshes of the same devices."""
  count, config = job.mesh.size, job.config
  meshes = [(job.mesh.shape["fsdp"], job.mesh.shape["model"])]
  meshes += [
    (fsdp, model)
    for model in (1, 2, 4, 8)
    for fsdp in (count // model, count // (2 * model), count // (4 * model))
    if fsdp and count % (fsdp * model) == 0
  ]
  for fsdp, model in meshes:
    shape = (count // (fsdp * model), fsdp, model)
    mesh = AbstractMesh(shape, job.mesh.axis_names, axis_types=job.mesh.axis_types)
    shards = shape[0] * fsdp
    prompts = config.sampling.prompts_per_step // config.algorithm.minibatches
    if prompts % shards:
      continue
    most = prompts // shards * config.sampling.group_size
    parts = config.learner.microbatches
    while parts <= most:
      learner = dataclasses.replace(config.learner, microbatches=parts)
      mesh_config = dataclasses.replace(config.mesh, fsdp=fsdp, model=model)
      changed = dataclasses.replace(config, learner=learner, mesh=mesh_config)
      yield Job(changed, mesh)
      parts *= 2


def _described(job: Job) -> str:
  config = job.config
  return (
    f"--config.mesh.fsdp={config.mesh.fsdp} --config.mesh.model={config.mesh.model} "
    f"--config.learner.microbatches={config.learner.microbatches}"
  )
