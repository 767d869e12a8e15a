"""Optimizers, and where their state lives."""

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from optax import contrib

from pgax.distributed.partitioning import replicated
from pgax.learner.config import OptimizerConfig
from pgax.models.parameters import matrices, matrix_axes
from pgax.types import Array, PyTree

_ADAM_RMS = 0.2  # root mean square of a step of AdamW, by arXiv 2502.16982


def make_optimizer(config: OptimizerConfig) -> optax.GradientTransformation:
  """Builds an optimizer with warmup and clipping; weight decay applies to matrices.

  Args:
    config: optimizer settings.

  Returns:
    The optimizer.
  """
  makers = {"adamw": _adamw, "muon": _muon, "adafactor": _adafactor}
  optimizer = makers[config.name](config, _schedule(config))
  optimizer = _with_moments_in(optimizer, config.moment_dtype)
  return optax.chain(optax.clip_by_global_norm(config.clip_norm), optimizer)


def _schedule(config: OptimizerConfig) -> optax.Schedule:
  if config.decay_steps:
    # `optax.warmup_cosine_decay_schedule` compares the rate, which may be traced, with 0.
    decay = config.decay_steps - config.warmup_steps
    rise = optax.linear_schedule(0.0, config.learning_rate, config.warmup_steps)
    cosine = optax.cosine_decay_schedule(config.learning_rate, decay)
    return optax.join_schedules([rise, cosine], [config.warmup_steps])
  if config.warmup_steps:
    return optax.linear_schedule(0.0, config.learning_rate, config.warmup_steps)
  return optax.constant_schedule(config.learning_rate)


def _adamw(
  config: OptimizerConfig, schedule: optax.Schedule
) -> optax.GradientTransformation:
  return optax.adamw(
    schedule,
    b1=config.b1,
    b2=config.b2,
    weight_decay=config.weight_decay,
    mask=matrices,
  )


def _muon(
  config: OptimizerConfig, schedule: optax.Schedule
) -> optax.GradientTransformation:
  return contrib.muon(
    schedule,
    weight_decay=config.weight_decay,
    adam_b1=config.b1,
    adam_b2=config.b2,
    muon_weight_dimension_numbers=_orthogonalized,
    consistent_rms=_ADAM_RMS,
  )


def _orthogonalized(params: PyTree) -> PyTree:
  """Axes of the matrices that Muon orthogonalizes: those of the blocks, and adapters."""

  def axes(path: tuple, is_matrix: bool) -> contrib.MuonDimensionNumbers | None:
    keys = tuple(str(key.key) for key in path)
    if not is_matrix or "blocks" not in keys:
      return None
    return contrib.MuonDimensionNumbers(*matrix_axes(keys, ranks[path]))

  ranks = {path: x.ndim for path, x in jax.tree_util.tree_leaves_with_path(params)}
  return jax.tree_util.tree_map_with_path(axes, matrices(params))


def _adafactor(
  config: OptimizerConfig, schedule: optax.Schedule
) -> optax.GradientTransformation:
  return optax.chain(
    optax.scale_by_factored_rms(),
    optax.clip_by_block_rms(1.0),
    optax.ema(config.b1, debias=False) if config.b1 else optax.identity(),
    optax.add_decayed_weights(config.weight_decay, matrices),
    optax.scale_by_learning_rate(schedule),
  )


def _with_moments_in(
  optimizer: optax.GradientTransformation, dtype: str
) -> optax.GradientTransformation:
  """Holds the moments in a dtype, not in the parameters'; steps are in float32."""

  def cast(state: PyTree, dtype: jnp.dtype) -> PyTree:
    def leaf(x: Array) -> Array:
      # Vectors are few, and one of them has Muon's coefficients.
      return x.astype(dtype) if x.ndim > 1 else x

    return jax.tree.map(leaf, state)

  def update(
    gradient: PyTree, state: PyTree, params: PyTree | None = None
  ) -> tuple[PyTree, PyTree]:
    updates, state = optimizer.update(gradient, cast(state, jnp.float32), params)
    return updates, cast(state, dtype)

  return optax.GradientTransformation(lambda x: cast(optimizer.init(x), dtype), update)


def optimizer_shardings(opt_state: PyTree, params: PyTree, mesh: Mesh) -> PyTree:
  """Shards moments as their parameters; everything else is replicated.

  Args:
    opt_state: state of the optimizer, as shapes.
    params: parameters, as shapes with shardings.
    mesh: mesh of devices.

  Returns:
    A pytree of shardings with the structure of `opt_state`.
  """
  by_path = dict(jax.tree_util.tree_leaves_with_path(params))

  def of(path: tuple, leaf: jax.ShapeDtypeStruct) -> NamedSharding:
    # A moment has the path of its parameter in the state's own.
    ends = (path[start:] for start in range(len(path)))
    owner = next((by_path[end] for end in ends if end in by_path), None)
    return replicated(mesh) if owner is None else _like(owner, leaf)

  return jax.tree_util.tree_map_with_path(of, opt_state)


def _like(param: jax.ShapeDtypeStruct, leaf: jax.ShapeDtypeStruct) -> NamedSharding:
  """Shards a moment of all axes of a parameter, or of all but one (a factor)."""
  mesh, spec = param.sharding.mesh, param.sharding.spec
  axes = range(param.ndim)
  spec = (*spec, *[None] * (param.ndim - len(spec)))
  kept = [axes, *([i for i in axes if i != left_out] for left_out in axes)]
  for chosen in kept:
    if tuple(param.shape[i] for i in chosen) == leaf.shape:
      return NamedSharding(mesh, PartitionSpec(*(spec[i] for i in chosen)))
  return replicated(mesh)
