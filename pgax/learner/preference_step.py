"""The step of a reward model: Bradley-Terry on preference pairs."""

import functools
from collections.abc import Callable

import flax.struct
import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh

from pgax.distributed.partitioning import abstract_params, placed, replicated
from pgax.learner.optimizer import optimizer_shardings
from pgax.learner.update import Update
from pgax.models import ScalarDecoder, sequence_scores
from pgax.models.lora import PolicyParams
from pgax.models.parameters import init_params
from pgax.ops.finite import all_finite, take_if
from pgax.ops.preferences import bradley_terry
from pgax.types import Array, PyTree


@flax.struct.dataclass
class RewardModelState:
  """The state of a reward model's training, except for the position in its data.

  Attributes:
    step: int32 scalar, number of steps done.
    key: random key of the run, never consumed.
    params: parameters of the reward model.
    opt_state: state of the optimizer.
    in_flight: see `TrainState`; always empty.
  """

  step: Array
  key: Array
  params: PyTree
  opt_state: PyTree
  in_flight: tuple[()] = ()

  @property
  def total_steps(self) -> Array:
    """Number of steps done in all stages, of which there is one."""
    return self.step

  @property
  def policy(self) -> PolicyParams:
    """The trained parameters."""
    return PolicyParams((), self.params)


def abstract_reward_model_state(
  model: ScalarDecoder, optimizer: optax.GradientTransformation, mesh: Mesh
) -> RewardModelState:
  """Returns shapes and shardings of a state without computing anything.

  Args:
    model: module of the reward model.
    optimizer: its optimizer.
    mesh: mesh of devices.

  Returns:
    A `RewardModelState` of `jax.ShapeDtypeStruct`s with shardings.
  """
  params = abstract_params(model, mesh)
  opt_state = jax.eval_shape(optimizer.init, params)
  shardings = optimizer_shardings(opt_state, params, mesh)
  step = jax.ShapeDtypeStruct((), jnp.int32, sharding=replicated(mesh))
  key = placed(jax.eval_shape(lambda: jax.random.key(0)), replicated(mesh))
  return RewardModelState(step, key, params, placed(opt_state, shardings))


def init_reward_model_state(
  model: ScalarDecoder,
  optimizer: optax.GradientTransformation,
  shardings: RewardModelState,
  seed: int,
) -> RewardModelState:
  """Initializes a state on the devices that will hold it.

  Args:
    model: module of the reward model.
    optimizer: its optimizer.
    shardings: shardings of the state.
    seed: seed of the parameters.

  Returns:
    A `RewardModelState` at step 0.
  """

  def init(key: Array) -> RewardModelState:
    params = init_params(model, key)
    return RewardModelState(jnp.int32(0), key, params, optimizer.init(params))

  return jax.jit(init, out_shardings=shardings)(jax.random.key(seed))


@functools.partial(jax.jit, static_argnames="model")
def margins(
  model: ScalarDecoder,
  params: PyTree,
  prompt_tokens: Array,
  prompt_mask: Array,
  tokens: Array,
  mask: Array,
) -> Array:
  """Computes how far each chosen completion scores above the rejected one.

  Args:
    model: module of the reward model.
    params: its parameters.
    prompt_tokens: `[N, P]` int32.
    prompt_mask: `[N, P]` bool.
    tokens: `[N, 2, T]` int32, chosen and rejected.
    mask: `[N, 2, T]` bool.

  Returns:
    `[N]` float32.
  """
  scores = sequence_scores(model, params, prompt_tokens, prompt_mask, tokens, mask)
  return scores[:, 0] - scores[:, 1]


def make_preference_step(
  model: ScalarDecoder,
  optimizer: optax.GradientTransformation,
  shardings: RewardModelState | None = None,
) -> Callable[..., tuple[RewardModelState, Update]]:
  """Jits `preference_step` for a reward model; the state is donated.

  Args:
    model: module of the reward model.
    optimizer: its optimizer.
    shardings: shardings of the state.

  Returns:
    A function of a state and the arrays of `margins`, by their names.
  """
  return jax.jit(
    functools.partial(preference_step, model, optimizer),
    donate_argnums=0,
    out_shardings=None if shardings is None else (shardings, None),
  )


def preference_step(
  model: ScalarDecoder,
  optimizer: optax.GradientTransformation,
  state: RewardModelState,
  **pairs: Array,
) -> tuple[RewardModelState, Update]:
  """Minimizes the mean negative log-likelihood of preference pairs.

  An update that is not finite is not taken.

  Args:
    model: module of the reward model.
    optimizer: its optimizer.
    state: state before the step.
    **pairs: arrays of `margins`.

  Returns:
    The next state and an `Update`.
  """

  def objective(params: PyTree) -> tuple[Array, Array]:
    margin = margins(model, params, **pairs)
    return jnp.mean(bradley_terry(margin, jnp.zeros_like(margin))), margin

  (value, margin), gradient = jax.value_and_grad(objective, has_aux=True)(state.params)
  updates, opt_state = optimizer.update(gradient, state.opt_state, state.params)
  params, grad_norm = optax.apply_updates(state.params, updates), optax.tree.norm(gradient)
  finite = all_finite(value, grad_norm, optax.tree.norm(params))
  before = state.params, state.opt_state
  params, opt_state = take_if(finite, (params, opt_state), before)
  metrics = {
    "loss": value,
    "accuracy": jnp.mean(margin > 0),
    "margin": jnp.mean(margin),
    "grad_norm": grad_norm,
    "param_norm": optax.tree.norm(params),
    "update/skipped": jnp.sum(~finite),
  }
  state = state.replace(step=state.step + 1, params=params, opt_state=opt_state)
  return state, Update(metrics)
