"""Completions of a batch in microbatches, sorted by their lengths.

Prompts are read once, and a completion finds what it needs of its prompt by index. So a
microbatch can hold any completions: a part of a group, or those of about one length, which
are then computed at that length.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from pgax.learner.learner import Learner
from pgax.types import Array, Batch, ExpertChoices, PyTree, Rollout

_BUCKET_TOKENS, _MOST_BUCKETS = 128, 6  # where the number of buckets is not given


class Microbatch(NamedTuple):
  """Some completions of every lane.

  Attributes:
    completions: arrays `[A, M, ...]` of `M` completions in each of `A` lanes, cut to their
      width; those of prompts are None.
    prompt_mask: `[A, R, P]` bool, mask of all prompts of each lane.
    prompts: `[A, M]` int32, index of each completion's prompt in its lane; None if a lane
      is one prompt.
  """

  completions: Rollout | Batch
  prompt_mask: Array
  prompts: Array | None


@dataclasses.dataclass(frozen=True)
class RowPlan:
  """How completions are divided; all of it is compiled in.

  Attributes:
    lanes: number of parts that prompts are divided into, in order, whose completions stay
      together; one for each device that prompts are sharded over.
    microbatches: number of microbatches.
    widths: numbers of tokens that completions are cut to, ascending; the last is `T`.
    prompts: number of prompts, `N`.
    group: number of completions of each prompt, `G`.
  """

  lanes: int
  microbatches: int
  widths: tuple[int, ...]
  prompts: int
  group: int

  @property
  def whole(self) -> bool:
    """Whether one microbatch holds everything; then groups share their prompts' keys."""
    return self.microbatches == 1

  @property
  def rows(self) -> int:
    """Number of completions of a lane in a microbatch."""
    return -(-self.prompts * self.group // (self.lanes * self.microbatches))

  @property
  def prompt_chunks(self) -> int:
    """Number of parts in which prompts are read."""
    return math.gcd(self.microbatches, self.prompts // self.lanes)


def plan_rows(learner: Learner, shape: tuple[int, int, int]) -> RowPlan:
  """Plans the microbatches of a batch.

  Args:
    learner: number of lanes and settings.
    shape: `(N, G, T)`.

  Returns:
    A `RowPlan`.

  Raises:
    ValueError: if the lanes do not divide the prompts.
  """
  prompts, group, length = shape
  lanes, config = learner.lanes, learner.config
  if prompts % lanes:
    raise ValueError(f"lanes is {lanes}; it must divide the {prompts} prompts")
  buckets = config.length_buckets or min(max(length // _BUCKET_TOKENS, 1), _MOST_BUCKETS)
  widths = sorted({-(-length * i // buckets) for i in range(1, buckets + 1)})
  # Each width gets as many microbatches as the others.
  microbatches = -(-config.microbatches // len(widths)) * len(widths)
  microbatches = min(microbatches, prompts // lanes * group)
  if microbatches == 1:
    return RowPlan(prompts, 1, (length,), prompts, group)
  return RowPlan(lanes, microbatches, tuple(widths), prompts, group)


def arrange(plan: RowPlan, mask: Array) -> Array:
  """Assigns completions to microbatches, those of like lengths together.

  Args:
    plan: how completions are divided.
    mask: `[N, G, T]` bool, tokens that exist.

  Returns:
    `[microbatches, A, M]` int32, index of each completion in its lane. Those past the last
    one are places that stay empty.
  """
  count = plan.prompts * plan.group // plan.lanes
  order = jnp.broadcast_to(jnp.arange(count), (plan.lanes, count))
  if len(plan.widths) > 1:
    order = jnp.argsort(_ends(mask).reshape(plan.lanes, count), axis=-1)
  empty = jnp.arange(count, plan.rows * plan.microbatches)
  empty = jnp.broadcast_to(empty, (plan.lanes, len(empty)))
  order = jnp.concatenate([order, empty], axis=-1)
  return order.reshape(plan.lanes, plan.microbatches, plan.rows).swapaxes(0, 1)


def map_rows(
  plan: RowPlan,
  function: Callable[[Microbatch], PyTree],
  completions: Rollout | Batch,
) -> PyTree:
  """Applies a function to all microbatches.

  Args:
    plan: how completions are divided.
    function: maps a `Microbatch` to arrays `[A, M]` and `[A, M, T]`.
    completions: a rollout or a batch.

  Returns:
    The function's outputs, as arrays `[N, G]` and `[N, G, T]`.
  """
  _, outputs = scan_rows(plan, lambda _, part: ((), function(part)), (), completions)
  return outputs


def scan_rows(
  plan: RowPlan,
  function: Callable[[PyTree, Microbatch], tuple[PyTree, PyTree]],
  total: PyTree,
  completions: Rollout | Batch,
) -> tuple[PyTree, PyTree]:
  """Applies a function to one microbatch after the other, and adds up its first outputs.

  Args:
    plan: how completions are divided.
    function: maps a `Microbatch` to a pytree like `total`, and to arrays `[A, M]` and
      `[A, M, T]`.
    total: pytree of arrays to begin with.
    completions: a rollout or a batch.

  Returns:
    The sum, and the other outputs as arrays `[N, G]` and `[N, G, T]`.
  """
  whole, order = one_microbatch(completions), arrange(plan, completions.token_mask)
  by_lane = jax.tree.map(lambda x: x.reshape(plan.lanes, -1, *x.shape[2:]), whole)

  def step(total: PyTree, order: Array) -> tuple[PyTree, PyTree]:
    if plan.whole:
      return function(total, by_lane)
    chosen = jax.tree.map(lambda x: _take(x, order), by_lane.completions)
    prompts = jnp.minimum(order // plan.group, plan.prompts // plan.lanes - 1)
    part = Microbatch(chosen, by_lane.prompt_mask, prompts)
    return _at_width(plan.widths, function, total, part)

  total, outputs = jax.lax.scan(step, total, order)
  shape = plan.prompts, plan.group
  return total, jax.tree.map(lambda x: _put_back(x, order, shape), outputs)


def one_microbatch(completions: Rollout | Batch) -> Microbatch:
  """Makes all completions one microbatch, with a lane for each prompt.

  Args:
    completions: a rollout or a batch.

  Returns:
    A `Microbatch`.
  """
  experts = completions.experts
  without_prompts = completions.replace(
    prompt_tokens=None,
    prompt_mask=None,
    experts=experts and ExpertChoices(None, experts.completion),
  )
  return Microbatch(without_prompts, completions.prompt_mask[:, None], None)


def _ends(mask: Array) -> Array:
  """Returns the number of tokens up to the last one that exists, which may have gaps."""
  return jnp.max(jnp.where(mask, jnp.arange(1, mask.shape[-1] + 1), 0), axis=-1)


def _take(x: Array, order: Array) -> Array:
  """Takes rows `[A, M, ...]` of `[A, J, ...]`; those past the last are 0."""
  return jax.vmap(lambda x, i: x.at[i].get(mode="fill", fill_value=0))(x, order)


def _put_back(x: Array, order: Array, shape: tuple[int, int]) -> Array:
  """Inverts `_take` for all microbatches: `[microbatches, A, M, ...]` to `[N, G, ...]`."""
  order, x = order.swapaxes(0, 1), x.swapaxes(0, 1)
  lanes, rest = len(x), x.shape[3:]
  zeros = jnp.zeros((lanes, shape[0] * shape[1] // lanes, *rest), x.dtype)

  def put(zeros: Array, order: Array, rows: Array) -> Array:
    return zeros.at[order].set(rows, mode="drop", unique_indices=True)

  rows = x.reshape(lanes, -1, *rest)
  return jax.vmap(put)(zeros, order.reshape(lanes, -1), rows).reshape(*shape, *rest)


def _at_width(
  widths: tuple[int, ...], function: Callable, total: PyTree, part: Microbatch
) -> tuple[PyTree, PyTree]:
  """Applies a function to a microbatch at the least width that holds its completions."""
  longest = widths[-1]

  def resized(tree: PyTree, width: int) -> PyTree:
    def resize(x: Array) -> Array:
      if x.ndim < 3 or x.shape[2] == width:
        return x
      if width < x.shape[2]:
        return x[:, :, :width]
      return jnp.pad(x, [(0, 0)] * 2 + [(0, width - x.shape[2])] + [(0, 0)] * (x.ndim - 3))

    return jax.tree.map(resize, tree)

  def at(width: int) -> tuple[PyTree, PyTree]:
    cut = part._replace(completions=resized(part.completions, width))
    total_after, outputs = function(total, cut)
    return total_after, resized(outputs, longest)

  if len(widths) == 1:
    return at(longest)
  length = jnp.max(_ends(part.completions.token_mask))
  index = jnp.sum(length > jnp.array(widths[:-1]))
  return jax.lax.switch(index, [lambda width=width: at(width) for width in widths])
