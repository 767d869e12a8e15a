"""Completions of a batch in microbatches, sorted by their lengths.

Prompts are read once, and a completion finds what it needs of its prompt by index. So a
microbatch can hold any completions: a part of a group, or those of about one length, which
are then computed at that length.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from pgax.learner.learner import Learner
from pgax.models.prompts import CompletionTokens
from pgax.types import Array, Batch, ExpertChoices, PyTree, Rollout

_BUCKET_TOKENS, _MOST_BUCKETS = 128, 6  # where the number of buckets is not given


class Microbatch(NamedTuple):
  """Some completions of every lane.

  Attributes:
    completions: arrays `[A, M, ...]` of `M` completions in each of `A` lanes; those of
      prompts are None.
    prompt_mask: `[A, R, P]` bool, mask of all prompts of each lane.
    prompts: `[A, M]` int32, index of each completion's prompt in its lane; None if a lane
      is one prompt.
  """

  completions: Rollout | Batch
  prompt_mask: Array
  prompts: Array | None

  def cut(self, width: int) -> "Microbatch":
    """Cuts completions to a number of tokens."""
    return self._replace(completions=resized(self.completions, width))

  def tokens(self, replay: bool = False) -> CompletionTokens:
    """Returns what a model reads; with `replay` the experts of the rollout as well."""
    c = self.completions
    experts = c.experts.completion if replay else None
    return CompletionTokens(c.tokens, c.token_mask, self.prompt_mask, self.prompts, experts)


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
    unit: number of adjacent completions that stay together: 1, or `G`.
  """

  lanes: int
  microbatches: int
  widths: tuple[int, ...]
  prompts: int
  group: int
  unit: int = 1

  @property
  def whole(self) -> bool:
    """Whether one microbatch holds everything; then groups share their prompts' keys."""
    return self.microbatches == 1

  @property
  def rows(self) -> int:
    """Number of completions of a lane in a microbatch."""
    units = self.prompts * self.group // (self.lanes * self.unit)
    return -(-units // self.microbatches) * self.unit

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
  buckets = min(buckets, length)
  widths = sorted({-(-length * i // buckets) for i in range(1, buckets + 1)})
  # Each width gets as many microbatches as the others.
  microbatches = -(-config.microbatches // len(widths)) * len(widths)
  unit = group if learner.algorithm.compares_completions else 1
  microbatches = min(microbatches, prompts // lanes * group // unit)
  if microbatches == 1:
    return RowPlan(prompts, 1, (length,), prompts, group, unit)
  return RowPlan(lanes, microbatches, tuple(widths), prompts, group, unit)


@dataclasses.dataclass(frozen=True)
class Rows:
  """The completions of a batch, divided into microbatches.

  Attributes:
    plan: how they are divided.
    all: all completions in the lanes of the plan, `[A, J, ...]`.
    order: `[microbatches, A, M]` int32, index of each completion in its lane. Those past
      the last one are places that stay empty.
  """

  plan: RowPlan
  all: Microbatch
  order: Array

  def take(self, order: Array) -> Microbatch:
    """Takes a microbatch by an entry `[A, M]` of `order`, at the length of all."""
    plan = self.plan
    if plan.whole:
      return self.all
    prompts = jnp.minimum(order // plan.group, plan.prompts // plan.lanes - 1)
    completions = jax.tree.map(lambda x: _take(x, order), self.all.completions)
    return Microbatch(completions, self.all.prompt_mask, prompts)

  def bucket(self, part: Microbatch) -> Array | int:
    """Returns the index of the least width that holds a microbatch's completions."""
    widths = self.plan.widths
    if len(widths) == 1:
      return 0
    longest = jnp.max(_ends(part.completions.token_mask))
    return jnp.sum(longest > jnp.array(widths[:-1]))

  def put_back(self, outputs: PyTree) -> PyTree:
    """Puts outputs of all microbatches in place.

    Args:
      outputs: arrays `[microbatches, A, M, ...]`.

    Returns:
      Arrays `[N, G, ...]`.
    """
    shape = self.plan.prompts, self.plan.group
    return jax.tree.map(lambda x: _put_back(x, self.order, shape), outputs)


def divide(plan: RowPlan, completions: Rollout | Batch) -> Rows:
  """Assigns completions to microbatches, those of like lengths together.

  Args:
    plan: how completions are divided.
    completions: a rollout or a batch.

  Returns:
    `Rows`.
  """
  lanes, unit = plan.lanes, plan.unit
  count = plan.prompts * plan.group // (lanes * unit)
  order = jnp.broadcast_to(jnp.arange(count), (lanes, count))
  if len(plan.widths) > 1:
    ends = _ends(completions.token_mask).reshape(lanes, count, unit)
    order = jnp.argsort(jnp.max(ends, axis=-1), axis=-1)
  empty = jnp.arange(count, plan.rows * plan.microbatches // unit)
  empty = jnp.broadcast_to(empty, (lanes, len(empty)))
  order = jnp.concatenate([order, empty], axis=-1)
  order = order[..., None] * unit + jnp.arange(unit)
  return Rows(
    plan,
    jax.tree.map(lambda x: x.reshape(lanes, -1, *x.shape[2:]), one_microbatch(completions)),
    order.reshape(lanes, plan.microbatches, plan.rows).swapaxes(0, 1),
  )


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
  rows = divide(plan, completions)

  def at_width(width: int, part: Microbatch) -> PyTree:
    return resized(function(part.cut(width)), plan.widths[-1])

  def step(carry: tuple, order: Array) -> tuple[tuple, PyTree]:
    part = rows.take(order)
    branches = [functools.partial(at_width, width) for width in plan.widths]
    return carry, jax.lax.switch(rows.bucket(part), branches, part)

  return rows.put_back(jax.lax.scan(step, (), rows.order)[1])


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
    experts=None if experts is None else ExpertChoices(None, experts.completion),
  )
  return Microbatch(without_prompts, completions.prompt_mask[:, None], None)


def in_units(plan: RowPlan, tree: PyTree) -> PyTree:
  """Turns arrays `[A, M, ...]` of a microbatch into groups, if these stay together.

  Args:
    plan: how completions are divided.
    tree: arrays of a microbatch.

  Returns:
    Arrays `[A * M / G, G, ...]` if completions are compared; `tree` otherwise.
  """
  if plan.unit == 1:
    return tree
  return jax.tree.map(lambda x: x.reshape(-1, plan.unit, *x.shape[2:]), tree)


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


def resized(tree: PyTree, width: int) -> PyTree:
  """Cuts or pads the tokens of arrays `[A, M, T, ...]`; others stay as they are."""

  def resize(x: Array) -> Array:
    if x.ndim < 3 or width <= x.shape[2]:
      return x if x.ndim < 3 else x[:, :, :width]
    padding = [(0, 0)] * x.ndim
    padding[2] = (0, width - x.shape[2])
    return jnp.pad(x, padding)

  return jax.tree.map(resize, tree)
