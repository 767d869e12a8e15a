"""The training state: one immutable pytree, and the random keys of its steps."""

import functools

import flax.struct
import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from pgax.distributed.partitioning import (
  abstract_params,
  param_shardings,
  placed,
  replicated,
  shardings_of,
)
from pgax.learner.learner import Learner
from pgax.learner.optimizer import optimizer_shardings
from pgax.models import lora
from pgax.models.decoder import Decoder
from pgax.models.heads import with_decoder
from pgax.models.lora import PolicyParams
from pgax.models.parameters import cast_matrices, init_params
from pgax.types import Array, PyTree

# Values of `TrainState.stage`.
SUPERVISED, REINFORCEMENT = 0, 1


@flax.struct.dataclass
class TrainState:
  """The state of a run, except for the position in its data.

  Fields that an algorithm does not use are empty tuples.

  Attributes:
    stage: int32 scalar, `SUPERVISED` or `REINFORCEMENT`.
    step: int32 scalar, number of steps done in this stage.
    total_steps: int32 scalar, number of steps done in all stages. It numbers checkpoints,
      and no two steps of a run derive their random keys from the same number.
    key: random key of the run, never consumed; see `step_keys`.
    base: frozen parameters of the decoder under adapters, shared by policy and reference;
      empty without adapters.
    params: trained parameters of the policy: all of them, or its adapters.
    frozen: the same parameters of frozen policies by name, such as `reference`.
    opt_state: state of the policy's optimizer.
    algorithm_state: states of the algorithm's stateful parts; see `Algorithm.init`.
    critic_params: parameters of the critic.
    critic_opt_state: state of the critic's optimizer.
    in_flight: in a checkpoint, trained parameters of earlier steps that rollouts in flight
      are sampled with; see `rollout.Lagged`. Empty while a run trains.
  """

  stage: Array
  step: Array
  total_steps: Array
  key: Array
  base: PyTree
  params: PyTree
  frozen: dict[str, PyTree]
  opt_state: PyTree
  algorithm_state: PyTree
  critic_params: PyTree
  critic_opt_state: PyTree
  in_flight: tuple[PyTree, ...] = ()

  @property
  def policy(self) -> PolicyParams:
    """The parameters of the policy."""
    return PolicyParams(self.base, self.params)

  def advance(self, **changes: PyTree) -> "TrainState":
    """Returns the state after one more step, with the given fields replaced."""
    counts = {"step": self.step + 1, "total_steps": self.total_steps + 1}
    return self.replace(**counts, **changes)


def init_state(learner: Learner, mesh: Mesh, seed: int) -> TrainState:
  """Initializes a state on the devices that will hold it.

  Args:
    learner: decides which fields there are.
    mesh: mesh of devices.
    seed: seed of the parameters and of every later step.

  Returns:
    A `TrainState` at step 0 of the supervised stage, whose reference is the policy.
  """
  init = functools.partial(new_state, learner=learner)
  shardings = shardings_of(abstract_state(learner, mesh))
  return jax.jit(init, out_shardings=shardings)(jax.random.key(seed))


def new_state(key: Array, learner: Learner) -> TrainState:
  """Computes the state of `init_state`; it can be traced and mapped over keys.

  Args:
    key: random key of the parameters and of every later step.
    learner: decides which fields there are.

  Returns:
    A `TrainState` at step 0 of the supervised stage.
  """
  critic = learner.critic
  params_key, run_key, critic_key = jax.random.split(key, 3)
  base, params = _init_policy(learner.model, learner.lora, params_key)
  dtype = learner.config.param_dtype
  if learner.lora.rank:
    base = cast_matrices(base, learner.reference_dtype)
  else:
    params = cast_matrices(params, dtype)
  critic_params = ()
  if critic:
    critic_params = cast_matrices(init_params(critic, critic_key), dtype)
  return TrainState(
    stage=jnp.int32(SUPERVISED),
    step=jnp.int32(0),
    total_steps=jnp.int32(0),
    key=run_key,
    base=base,
    params=params,
    frozen=_frozen(learner, params),
    opt_state=learner.optimizer.init(params),
    algorithm_state=learner.algorithm.init(),
    critic_params=critic_params,
    critic_opt_state=learner.critic_optimizer.init(critic_params) if critic else (),
  )


def _init_policy(
  model: Decoder, config: lora.LoraConfig, key: Array
) -> tuple[PyTree, PyTree]:
  """Initializes `base` and `params` of a state."""
  if not config.rank:
    return (), init_params(model, key)
  base_key, key = jax.random.split(key)
  base = init_params(model, base_key)
  return base, lora.init(config, base, key)


def _frozen(learner: Learner, params: PyTree) -> dict[str, PyTree]:
  """Copies the policy for each frozen one: no buffer may be twice in a donated state."""

  def copy() -> PyTree:
    copied = jax.tree.map(jnp.copy, params)
    # Adapters stay in their dtype: they are small, and so is what they add.
    return copied if learner.lora.rank else cast_matrices(copied, learner.reference_dtype)

  return {name: copy() for name in learner.frozen_policies}


def abstract_policy(
  model: Decoder, config: lora.LoraConfig, mesh: Mesh
) -> tuple[PyTree, PyTree]:
  """Returns shapes and shardings of `base` and `params` of a `TrainState`.

  Args:
    model: decoder of the policy.
    config: adapter settings.
    mesh: mesh of devices.

  Returns:
    Two pytrees of `jax.ShapeDtypeStruct`s with shardings.

  Raises:
    ValueError: if the mesh does not divide the parameters, or a target of the
      adapters matches no matrix.
  """
  shapes = jax.eval_shape(functools.partial(_init_policy, model, config), jax.random.key(0))
  shardings = (), param_shardings(model, mesh)
  if config.rank:
    base = abstract_params(model, mesh)
    shardings = shardings[1], lora.shardings(config, base, shardings[1])
  return placed(shapes, shardings)


def abstract_state(learner: Learner, mesh: Mesh) -> TrainState:
  """Returns shapes and shardings of a state without computing anything.

  Args:
    learner: decides which fields there are.
    mesh: mesh of devices.

  Returns:
    A `TrainState` of `jax.ShapeDtypeStruct`s; moments are sharded as their parameters.
  """
  abstract = jax.eval_shape(
    functools.partial(new_state, learner=learner), jax.random.key(0)
  )
  policy = abstract_policy(learner.model, learner.lora, mesh)
  base, params = shardings_of(policy)
  critic, critic_opt = (), ()
  if learner.critic:
    critic = param_shardings(learner.critic, mesh)
    critic_opt = optimizer_shardings(
      abstract.critic_opt_state, placed(abstract.critic_params, critic), mesh
    )
  shardings = jax.tree.map(lambda _: replicated(mesh), abstract).replace(
    base=base,
    params=params,
    frozen=dict.fromkeys(learner.frozen_policies, params),
    opt_state=optimizer_shardings(abstract.opt_state, policy[1], mesh),
    critic_params=critic,
    critic_opt_state=critic_opt,
  )
  return placed(abstract, shardings)


def with_policy(state: TrainState, learner: Learner, params: PyTree) -> TrainState:
  """Replaces the policy of a fresh state.

  Args:
    state: state from `init_state`.
    learner: decides whether `params` are trained or are the base of adapters.
    params: parameters of the decoder, sharded by `partitioning.param_shardings`.

  Returns:
    The state; `begin_reinforcement` sets its reference.
  """
  field = "base" if learner.lora.rank else "params"  # fresh adapters change nothing
  return state.replace(**{field: _as_dtypes_of(getattr(state, field), params)})


def with_critic(state: TrainState, params: PyTree) -> TrainState:
  """Replaces the critic of a fresh state, head included.

  Args:
    state: state from `init_state`, of a learner with a critic.
    params: parameters of a `ScalarDecoder`, in any dtype.

  Returns:
    The state.
  """
  return state.replace(critic_params=_as_dtypes_of(state.critic_params, params))


def _as_dtypes_of(like: PyTree, params: PyTree) -> PyTree:
  """Casts parameters to the dtypes of others of the same structure."""
  return jax.tree.map(lambda old, new: new.astype(old.dtype), like, params)


def begin_reinforcement(
  state: TrainState,
  learner: Learner,
  shardings: TrainState,
  critic_from: PyTree | None = None,
) -> TrainState:
  """Begins the reinforcement stage: a fresh optimizer, and the policy as reference.

  Args:
    state: state at the end of the supervised stage.
    learner: learner of the reinforcement stage.
    shardings: shardings of the state.
    critic_from: parameters of a decoder to initialize the critic's decoder with; None
      keeps the fresh ones. Ignored without a critic.

  Returns:
    The state that the first reinforcement step takes.
  """
  begin = functools.partial(reinforcement_state, learner)
  return jax.jit(begin, out_shardings=shardings)(state, critic_from)


def reinforcement_state(
  learner: Learner, state: TrainState, critic_from: PyTree | None = None
) -> TrainState:
  """Computes the state of `begin_reinforcement`; it can be traced and mapped.

  Args:
    learner: learner of the reinforcement stage.
    state: state at the end of the supervised stage.
    critic_from: parameters to initialize the critic's decoder with; None for fresh ones.

  Returns:
    The state that the first reinforcement step takes.
  """
  critic_params = state.critic_params
  if learner.critic and critic_from is not None:
    copies = with_decoder(critic_params, jax.tree.map(jnp.copy, critic_from))
    critic_params = _as_dtypes_of(critic_params, copies)
  return state.replace(
    stage=jnp.int32(REINFORCEMENT),
    step=jnp.int32(0),
    frozen=_frozen(learner, state.params),
    opt_state=learner.optimizer.init(state.params),
    critic_params=critic_params,
  )
