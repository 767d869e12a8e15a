"""Searches for sizes that fit: longer completions, larger groups, or other settings."""

from collections.abc import Callable, Iterator

from jax.sharding import AbstractMesh

from experiments.plan import arithmetic
from experiments.plan.arithmetic import Job
from pgax.training import with_settings
from pgax.training.batches import prompts_computed

_MOST = 2**20  # tokens or completions that are tried at most
_MOST_DEVICES = 4096


def sentences(job: Job, limit: float | None) -> str:
  """Describes what fits, or what would make the run fit.

  Args:
    job: the run and its mesh.
    limit: bytes of a device; None if that is not known.

  Returns:
    One or two sentences.
  """
  if limit is None:
    return "What the devices hold is not known."
  if need(job) > limit:
    return _what_would_fit(job, limit)
  sampling = job.config.sampling
  length = _largest(sampling.max_completion_tokens, lambda x: _with(job, length=x), limit)
  group = _largest(sampling.group_size, lambda x: _with(job, group=x), limit)
  return (
    f"It fits. So do {length} tokens in groups of {sampling.group_size}, and groups of "
    f"{group} with {sampling.max_completion_tokens} tokens (powers of two tried)."
  )


def _what_would_fit(job: Job, limit: float) -> str:
  size, on_one = job.mesh.size, Job(job.config, _mesh(job, (1, 1, 1)))
  state = arithmetic.sampling_memory(on_one)["the state"]
  for count in _counts(size):
    # Divided by all devices, the state is the least that anything needs.
    possible = state <= count * limit
    better = possible and next(
      (x for x in _alternatives(job, count) if need(x) <= limit), None
    )
    if better:
      on = "" if count == size else f"on {count} of these devices "
      return f"It does not fit. It would {on}with {_described(better)}."
  return (
    f"It does not fit, nor does it on up to {max(size, _MOST_DEVICES)} of these devices: "
    "the model is too large for them, or a completion too long"
  )


def _counts(size: int) -> Iterator[int]:
  """Yields the number of devices itself, and powers of two above it: they divide shapes."""
  yield size
  count = 1
  while count <= _MOST_DEVICES:
    if count > size:
      yield count
    count *= 2


def _mesh(job: Job, shape: tuple[int, int, int]) -> AbstractMesh:
  return AbstractMesh(shape, job.mesh.axis_names, axis_types=job.mesh.axis_types)


def need(job: Job) -> float:
  """Returns the bytes that a run needs on a device, the most of its programs."""
  parts = arithmetic.update_memory(job), arithmetic.sampling_memory(job)
  return max(map(arithmetic.total, parts))


def _with(job: Job, length: int = 0, group: int = 0) -> Job:
  sizes = {"max_completion_tokens": length, "group_size": group}
  changes = {f"sampling.{name}": size for name, size in sizes.items() if size}
  return Job(with_settings(job.config, changes), job.mesh)


def _largest(start: int, make: Callable[[int], Job], limit: float) -> int:
  value = start
  while value < _MOST and need(make(2 * value)) <= limit:
    value *= 2
  return value


def _alternatives(job: Job, count: int) -> Iterator[Job]:
  """The same run with more microbatches, then on other meshes."""
  config, meshes = job.config, []
  if count == job.mesh.size:
    meshes.append((job.mesh.shape["fsdp"], job.mesh.shape["model"]))
  meshes += [
    (fsdp, model)
    for model in (1, 2, 4, 8)
    for fsdp in (count // model, count // (2 * model), count // (4 * model))
    if fsdp and count % (fsdp * model) == 0
  ]
  for fsdp, model in meshes:
    shape = (count // (fsdp * model), fsdp, model)
    mesh = _mesh(job, shape)
    prompts = prompts_computed(config, mesh) // config.trained_algorithm.minibatches
    most = prompts // (shape[0] * fsdp) * config.sampling.group_size
    parts = config.learner.microbatches
    while parts <= most:
      changes = {"learner.microbatches": parts, "mesh.fsdp": fsdp, "mesh.model": model}
      yield Job(with_settings(config, changes), mesh)
      parts *= 2


def _described(job: Job) -> str:
  config = job.config
  return (
    f"--config.mesh.fsdp={config.mesh.fsdp} --config.mesh.model={config.mesh.model} "
    f"--config.learner.microbatches={config.learner.microbatches}"
  )
