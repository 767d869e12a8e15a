"""Everything that a run is, as one immutable pytree, and the random keys of its steps."""

import flax.struct
import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh

from pgax.algorithms import Algorithm
from pgax.models.decoder import Decoder
from pgax.models.partitioning import init_params, replicated
from pgax.training.config import OptimizerConfig
from pgax.types import Array, PyTree


@flax.struct.dataclass
class TrainState:
  """The whole state of a run but for the position in its data.

  Attributes:
    step: int32 scalar, optimizer-independent count of the steps done, warm start included.
    key: random key of the run, never consumed: see `step_keys`.
    params: of the policy.
    ref_params: of the frozen reference policy.
    opt_state: of the optimizer.
    kl_state: of the KL controller; empty where there is none.
  """

  step: Array
  key: Array
  params: PyTree
  ref_params: PyTree
  opt_state: PyTree
  kl_state: PyTree


def make_optimizer(config: OptimizerConfig) -> optax.GradientTransformation:
  """AdamW with warm-up and global-norm clipping; decay on matrices only."""
  if config.decay_steps:
    schedule = optax.warmup_cosine_decay_schedule(
      0.0, config.learning_rate, config.warmup_steps, config.decay_steps
    )
  elif config.warmup_steps:
    schedule = optax.linear_schedule(0.0, config.learning_rate, config.warmup_steps)
  else:
    schedule = optax.constant_schedule(config.learning_rate)
  adamw = optax.adamw(
    schedule,
    b1=config.b1,
    b2=config.b2,
    weight_decay=config.weight_decay,
    mask=lambda params: jax.tree.map(lambda x: x.ndim > 1, params),
  )
  return optax.chain(optax.clip_by_global_norm(config.clip_norm), adamw)


def _placed(tree: PyTree, params: PyTree, optimizer, mesh: Mesh) -> PyTree:
  """An optimizer state whose moments lie where their parameters do."""
  shardings = optax.tree_map_params(
    optimizer,
    lambda _, param: param.sharding,
    tree,
    params,
    transform_non_params=lambda _: replicated(mesh),
  )
  return jax.device_put(tree, shardings)


def init_state(
  model: Decoder,
  algorithm: Algorithm,
  optimizer: optax.GradientTransformation,
  mesh: Mesh,
  seed: int,
) -> TrainState:
  """A fresh state, on the devices of the mesh.

  Args:
    model: the decoder.
    algorithm: decides the KL controller's state.
    optimizer: of the first stage.
    mesh: of the devices.
    seed: of the parameters and of all that follows.

  Returns:
    A `TrainState` at step 0 whose reference is the policy itself.
  """
  params_key, run_key = jax.random.split(jax.random.key(seed))
  params = init_params(model, params_key, mesh)
  rest = (jnp.int32(0), run_key, algorithm.kl.controller.init() if algorithm.kl else ())
  step, run_key, kl_state = jax.device_put(rest, replicated(mesh))
  return TrainState(
    step=step,
    key=run_key,
    params=params,
    ref_params=jax.tree.map(jnp.copy, params),
    opt_state=_placed(optimizer.init(params), params, optimizer, mesh),
    kl_state=kl_state,
  )


def begin_reinforcement(
  state: TrainState, optimizer: optax.GradientTransformation, mesh: Mesh
) -> TrainState:
  """The state after the warm start: a new optimizer, and the policy as the reference."""
  return state.replace(
    # A copy, because the train step donates its state: no buffer may be in it twice.
    ref_params=jax.tree.map(jnp.copy, state.params),
    opt_state=_placed(optimizer.init(state.params), state.params, optimizer, mesh),
  )


def step_keys(key: Array, step: Array | int) -> tuple[Array, Array]:
  """The keys of one step: to sample with, and to shuffle with. No step shares a key.

  Args:
    key: of the run.
    step: number of the step.

  Returns:
    The rollout's key and the update's key.
  """
  rollout_key, update_key = jax.random.split(jax.random.fold_in(key, step))
  return rollout_key, update_key
