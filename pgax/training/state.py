"""Everything that a run is, as one immutable pytree, and the random keys of its steps."""

import functools

import flax.struct
import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh

from pgax.algorithms import Algorithm
from pgax.models.decoder import Decoder
from pgax.models.partitioning import init_params, param_shardings, replicated
from pgax.training.config import OptimizerConfig
from pgax.types import Array, PyTree


@flax.struct.dataclass
class TrainState:
  """The whole state of a run but for the position in its data.

  Attributes:
    step: int32 scalar, number of steps done, those of the warm start included.
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


def _fresh(
  key: Array,
  model: Decoder,
  algorithm: Algorithm,
  optimizer: optax.GradientTransformation,
) -> TrainState:
  params_key, run_key = jax.random.split(key)
  params = init_params(model, params_key)
  return TrainState(
    step=jnp.int32(0),
    key=run_key,
    params=params,
    # A copy, because the train step donates its state: no buffer may be in it twice.
    ref_params=jax.tree.map(jnp.copy, params),
    opt_state=optimizer.init(params),
    kl_state=algorithm.kl.controller.init() if algorithm.kl else (),
  )


def abstract_state(
  model: Decoder,
  algorithm: Algorithm,
  optimizer: optax.GradientTransformation,
  mesh: Mesh,
) -> TrainState:
  """Shapes of the state and where its parts lie, nothing computed.

  Args:
    model: the decoder.
    algorithm: decides the KL controller's state.
    optimizer: decides its own.
    mesh: of the devices.

  Returns:
    A `TrainState` of `jax.ShapeDtypeStruct`s with shardings: moments lie where their
    parameters do.
  """
  make = functools.partial(_fresh, model=model, algorithm=algorithm, optimizer=optimizer)
  abstract = jax.eval_shape(make, jax.random.key(0))
  everywhere, params = replicated(mesh), param_shardings(model, mesh)
  shardings = TrainState(
    step=everywhere,
    key=everywhere,
    params=params,
    ref_params=params,
    opt_state=optax.tree.map_params(
      optimizer,
      lambda _, sharding: sharding,
      abstract.opt_state,
      params,
      transform_non_params=lambda _: everywhere,
    ),
    kl_state=jax.tree.map(lambda _: everywhere, abstract.kl_state),
  )
  return jax.tree.map(
    lambda x, sharding: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding),
    abstract,
    shardings,
  )


def shardings_of(state: TrainState) -> TrainState:
  """Where the parts of a state lie, abstract or not."""
  return jax.tree.map(lambda x: x.sharding, state)


def init_state(
  model: Decoder,
  algorithm: Algorithm,
  optimizer: optax.GradientTransformation,
  mesh: Mesh,
  seed: int,
) -> TrainState:
  """A fresh state, made in place on the devices that will hold it.

  Args:
    model: the decoder.
    algorithm: decides the KL controller's state.
    optimizer: of the first stage.
    mesh: of the devices.
    seed: of the parameters and of all that follows.

  Returns:
    A `TrainState` at step 0 whose reference is the policy itself.
  """
  make = functools.partial(_fresh, model=model, algorithm=algorithm, optimizer=optimizer)
  shardings = shardings_of(abstract_state(model, algorithm, optimizer, mesh))
  return jax.jit(make, out_shardings=shardings)(jax.random.key(seed))


def begin_reinforcement(
  state: TrainState, optimizer: optax.GradientTransformation, shardings: TrainState
) -> TrainState:
  """The state after the warm start: a new optimizer, and the policy as the reference.

  Args:
    state: at the end of the warm start.
    optimizer: of the policy.
    shardings: of the state, from `shardings_of`.

  Returns:
    The state that the first reinforcement step takes.
  """

  def begin(state: TrainState) -> TrainState:
    return state.replace(
      ref_params=jax.tree.map(jnp.copy, state.params),
      opt_state=optimizer.init(state.params),
    )

  return jax.jit(begin, out_shardings=shardings)(state)


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
