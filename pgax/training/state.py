"""Everything that a run is, as one immutable pytree, and the random keys of its steps."""

import functools

import flax.struct
import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh

from pgax.models import lora
from pgax.models.decoder import Decoder
from pgax.models.heads import with_decoder
from pgax.models.parameters import matrices
from pgax.models.partitioning import (
  abstract_params,
  init_params,
  param_shardings,
  replicated,
)
from pgax.training.learner import Learner
from pgax.training.optimizer_config import OptimizerConfig
from pgax.types import Array, PyTree


@flax.struct.dataclass
class TrainState:
  """The whole state of a run but for the position in its data.

  Attributes:
    step: int32 scalar, number of steps done, those of the warm start included.
    key: random key of the run, never consumed: see `step_keys`.
    base: the decoder's parameters where adapters learn, of policy and reference alike;
      empty where the policy itself learns.
    params: what learns of the policy: all of it, or its adapters.
    ref_params: the same of the frozen reference policy.
    opt_state: of the optimizer.
    kl_state: of the KL controller; empty where there is none.
    baseline_state: of the algorithm's baseline; empty where it keeps none.
    critic_params: of the critic; empty where there is none.
    critic_opt_state: of the critic's optimizer; empty where there is none.
  """

  step: Array
  key: Array
  base: PyTree
  params: PyTree
  ref_params: PyTree
  opt_state: PyTree
  kl_state: PyTree
  baseline_state: PyTree
  critic_params: PyTree
  critic_opt_state: PyTree


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
    mask=matrices,
  )
  return optax.chain(optax.clip_by_global_norm(config.clip_norm), adamw)


def _fresh_policy(
  model: Decoder, config: lora.LoraConfig, key: Array
) -> tuple[PyTree, PyTree]:
  """The frozen base, and what learns."""
  if not config.rank:
    return (), init_params(model, key)
  base_key, key = jax.random.split(key)
  base = init_params(model, base_key)
  return base, lora.init(config, base, key)


def _placed(shapes: PyTree, shardings: PyTree) -> PyTree:
  return jax.tree.map(
    lambda x, sharding: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding),
    shapes,
    shardings,
  )


def abstract_policy(
  model: Decoder, config: lora.LoraConfig, mesh: Mesh
) -> tuple[PyTree, PyTree]:
  """Shapes of `base` and `params` of a `TrainState` and where they lie.

  Args:
    model: the policy's decoder.
    config: of the adapters.
    mesh: of the devices.

  Returns:
    Two pytrees of `jax.ShapeDtypeStruct`s with shardings.

  Raises:
    ValueError: if the mesh does not divide the parameters, or the adapters are of a matrix
      that is not there.
  """
  make = functools.partial(_fresh_policy, model, config)
  places = (), param_shardings(model, mesh)
  if config.rank:
    base = abstract_params(model, mesh)
    places = places[1], lora.shardings(config, base, places[1])
  return _placed(jax.eval_shape(make, jax.random.key(0)), places)


def _fresh(key: Array, learner: Learner) -> TrainState:
  algorithm, critic = learner.algorithm, learner.critic
  params_key, run_key, critic_key = jax.random.split(key, 3)
  base, params = _fresh_policy(learner.model, learner.lora, params_key)
  critic_params = init_params(critic, critic_key) if critic else ()
  return TrainState(
    step=jnp.int32(0),
    key=run_key,
    base=base,
    params=params,
    # A copy, because the train step donates its state: no buffer may be in it twice.
    ref_params=jax.tree.map(jnp.copy, params),
    opt_state=learner.optimizer.init(params),
    kl_state=algorithm.kl.controller.init() if algorithm.kl else (),
    baseline_state=algorithm.baseline.init() if algorithm.baseline else (),
    critic_params=critic_params,
    critic_opt_state=learner.value_optimizer.init(critic_params) if critic else (),
  )


def optimizer_shardings(
  optimizer: optax.GradientTransformation, opt_state: PyTree, params: PyTree, mesh: Mesh
) -> PyTree:
  """Moments lie where their parameters do, everything else everywhere.

  Args:
    optimizer: the optimizer.
    opt_state: of the optimizer, by shapes alone.
    params: where the parameters lie.
    mesh: of the devices.

  Returns:
    A pytree of shardings, the structure of `opt_state`.
  """
  return optax.tree.map_params(
    optimizer,
    lambda _, sharding: sharding,
    opt_state,
    params,
    transform_non_params=lambda _: replicated(mesh),
  )


def abstract_state(learner: Learner, mesh: Mesh) -> TrainState:
  """Shapes of the state and where its parts lie, nothing computed.

  Args:
    learner: decides what there is.
    mesh: of the devices.

  Returns:
    A `TrainState` of `jax.ShapeDtypeStruct`s with shardings: moments lie where their
    parameters do.
  """
  make = functools.partial(_fresh, learner=learner)
  abstract = jax.eval_shape(make, jax.random.key(0))
  policy = abstract_policy(learner.model, learner.lora, mesh)
  base, params = jax.tree.map(lambda x: x.sharding, policy)
  critic, critic_opt = (), ()
  if learner.critic:
    critic = param_shardings(learner.critic, mesh)
    critic_opt = optimizer_shardings(
      learner.value_optimizer, abstract.critic_opt_state, critic, mesh
    )
  shardings = jax.tree.map(lambda _: replicated(mesh), abstract).replace(
    base=base,
    params=params,
    ref_params=params,
    opt_state=optimizer_shardings(learner.optimizer, abstract.opt_state, params, mesh),
    critic_params=critic,
    critic_opt_state=critic_opt,
  )
  return _placed(abstract, shardings)


def shardings_of(state: TrainState) -> TrainState:
  """Where the parts of a state lie, abstract or not."""
  return jax.tree.map(lambda x: x.sharding, state)


def init_state(learner: Learner, mesh: Mesh, seed: int) -> TrainState:
  """A fresh state, made in place on the devices that will hold it.

  Args:
    learner: decides what there is; its optimizer is that of the first stage.
    mesh: of the devices.
    seed: of the parameters and of all that follows.

  Returns:
    A `TrainState` at step 0 whose reference is the policy itself.
  """
  make = functools.partial(_fresh, learner=learner)
  shardings = shardings_of(abstract_state(learner, mesh))
  return jax.jit(make, out_shardings=shardings)(jax.random.key(seed))


def start_from(state: TrainState, learner: Learner, params: PyTree) -> TrainState:
  """A fresh state whose policy is a given one.

  Args:
    state: from `init_state`.
    learner: decides whether all of the policy learns, or its adapters alone.
    params: of the decoder, laid out as `partitioning.param_shardings` says.

  Returns:
    The state; its reference is set by `begin_reinforcement`.
  """
  if learner.lora.rank:  # fresh adapters change nothing
    return state.replace(base=params)
  return state.replace(params=params)


def begin_reinforcement(
  state: TrainState,
  learner: Learner,
  shardings: TrainState,
  critic_from: PyTree | None = None,
) -> TrainState:
  """The state after the warm start: a new optimizer, and the policy as the reference.

  Args:
    state: at the end of the warm start.
    learner: with the optimizer of the policy.
    shardings: of the state, from `shardings_of`.
    critic_from: parameters of a decoder that the critic starts from, the policy's say;
      None leaves it fresh. Its head is at zero either way. Plays no part without a critic.

  Returns:
    The state that the first reinforcement step takes.
  """

  def begin(state: TrainState, critic_from: PyTree | None) -> TrainState:
    critic_params = state.critic_params
    if learner.critic and critic_from is not None:
      critic_params = with_decoder(critic_params, jax.tree.map(jnp.copy, critic_from))
    return state.replace(
      ref_params=jax.tree.map(jnp.copy, state.params),
      opt_state=learner.optimizer.init(state.params),
      critic_params=critic_params,
    )

  return jax.jit(begin, out_shardings=shardings)(state, critic_from)


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
