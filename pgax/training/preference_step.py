"""The jitted step of a reward model: Bradley-Terry on preference pairs."""

import functools
from collections.abc import Callable

import flax.struct
import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh

from pgax.models import Critic, sequence_scores
from pgax.models.partitioning import abstract_params, init_params, replicated
from pgax.ops.preferences import bradley_terry
from pgax.training.state import optimizer_shardings
from pgax.types import Array, PyTree


@flax.struct.dataclass
class ScorerState:
  """The whole state of the training of a sequence scorer but for the position in its data.

  Attributes:
    step: int32 scalar, number of steps done.
    params: of the scorer.
    opt_state: of the optimizer.
  """

  step: Array
  params: PyTree
  opt_state: PyTree


def abstract_scorer_state(
  scorer: Critic, optimizer: optax.GradientTransformation, mesh: Mesh
) -> ScorerState:
  """Shapes of the state and where its parts lie, nothing computed."""
  params = abstract_params(scorer, mesh)
  opt_state = jax.eval_shape(optimizer.init, params)
  places = jax.tree.map(lambda x: x.sharding, params)
  places = optimizer_shardings(optimizer, opt_state, places, mesh)
  opt_state = jax.tree.map(
    lambda x, place: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place),
    opt_state,
    places,
  )
  step = jax.ShapeDtypeStruct((), jnp.int32, sharding=replicated(mesh))
  return ScorerState(step, params, opt_state)


def init_scorer_state(
  scorer: Critic,
  optimizer: optax.GradientTransformation,
  shardings: ScorerState,
  seed: int,
) -> ScorerState:
  """A fresh state, made in place on the devices that will hold it."""

  def fresh(key: Array) -> ScorerState:
    params = init_params(scorer, key)
    return ScorerState(jnp.int32(0), params, optimizer.init(params))

  return jax.jit(fresh, out_shardings=shardings)(jax.random.key(seed))


@functools.partial(jax.jit, static_argnames="scorer")
def margins(
  scorer: Critic,
  params: PyTree,
  prompt_tokens: Array,
  prompt_mask: Array,
  tokens: Array,
  mask: Array,
) -> Array:
  """By how much each chosen completion scores above the rejected one.

  Args:
    scorer: the module.
    params: its parameters.
    prompt_tokens: `[N, P]` int32.
    prompt_mask: `[N, P]` bool.
    tokens: `[N, 2, T]` int32, chosen and rejected.
    mask: `[N, 2, T]` bool.

  Returns:
    `[N]` float32.
  """
  scores = sequence_scores(scorer, params, prompt_tokens, prompt_mask, tokens, mask)
  return scores[:, 0] - scores[:, 1]


def make_preference_step(
  scorer: Critic,
  optimizer: optax.GradientTransformation,
  shardings: ScorerState | None = None,
) -> Callable[..., tuple[ScorerState, dict[str, Array]]]:
  """Builds the step: mean negative log-likelihood of the preferences.

  Args:
    scorer: what learns.
    optimizer: of the scorer.
    shardings: of the state, as for `make_train_step`.

  Returns:
    A jitted function of the state (donated) and the arrays of `margins` to the next state
    and its metrics.
  """
  out_shardings = None if shardings is None else (shardings, None)

  @functools.partial(jax.jit, donate_argnums=0, out_shardings=out_shardings)
  def preference_step(state: ScorerState, *pairs: Array):
    def objective(params: PyTree) -> tuple[Array, Array]:
      above = margins(scorer, params, *pairs)
      return jnp.mean(bradley_terry(above, jnp.zeros_like(above))), above

    (value, above), gradient = jax.value_and_grad(objective, has_aux=True)(state.params)
    updates, opt_state = optimizer.update(gradient, state.opt_state, state.params)
    params = optax.apply_updates(state.params, updates)
    metrics = {
      "loss": value,
      "accuracy": jnp.mean(above > 0),
      "margin": jnp.mean(above),
      "grad_norm": optax.tree.norm(gradient),
      "param_norm": optax.tree.norm(params),
    }
    return ScorerState(state.step + 1, params, opt_state), metrics

  return preference_step
