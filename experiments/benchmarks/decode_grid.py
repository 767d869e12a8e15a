"""Attention of one decoded token, by every formulation, over a grid of shapes.

Scores and averages are products of matrices, or sums of elementwise products, with keys and
values stored by slots (`[..., slots, width]`) or transposed (`[..., width, slots]`). The
last column is a whole step of pgax's decoder with one layer, whose other matrices are tiny:
it shows what pgax chooses.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp

from experiments.benchmarks.report import table
from pgax.models import Decoder, DecoderConfig
from pgax.models.cache import with_slots
from pgax.models.parameters import init_params
from pgax.models.prompts import read_prompts
from pgax.types import Array

ROWS, SLOTS = (1, 16, 64, 256), (64, 128, 256, 512, 1024, 2048)
_CALLS, _ENOUGH = 7, 0.5  # calls; seconds after which there are no more


def _product(formula: str) -> Callable[[Array, Array], Array]:
  def call(left: Array, right: Array) -> Array:
    return jnp.einsum(formula, left, right, preferred_element_type=jnp.float32)

  return call


# Queries `[B, K, R, D]` and keys, then probabilities `[B, K, R, S]` and values. The text
# says how keys and values `[B, K, ...]` are stored.
SCORES = {
  "product": ("slots", _product("bkrd,bksd->bkrs")),
  "product^T": ("transposed", _product("bkrd,bkds->bkrs")),
  "sum": ("slots", lambda q, k: jnp.sum(q[..., None, :] * k[:, :, None], axis=-1)),
  "sum^T": ("transposed", lambda q, k: jnp.sum(q[..., None] * k[:, :, None], axis=-2)),
}
MIX = {
  "product": ("slots", _product("bkrs,bksd->bkrd")),
  "product^T": ("transposed", _product("bkrs,bkds->bkrd")),
  "sum": ("slots", lambda p, v: jnp.sum(p[..., None] * v[:, :, None], axis=-2)),
  "sum^T": ("transposed", lambda p, v: jnp.sum(p[..., None, :] * v[:, :, None], axis=-1)),
}


def key_heads(heads: int) -> list[int]:
  """Returns 1, 2, half of and all of the query heads, where they divide them."""
  return sorted(k for k in {1, 2, heads // 2, heads} if k and heads % k == 0)


def seconds(call: Callable[[], Any]) -> float:
  """Returns the median time of a call, after one that is not timed."""
  jax.block_until_ready(call())
  times = []
  while len(times) < _CALLS and sum(times) < _ENOUGH:
    start = time.perf_counter()
    jax.block_until_ready(call())
    times.append(time.perf_counter() - start)
  return statistics.median(times)


def formulations(
  batch: int, heads: int, kv_heads: int, slots: int, width: int, dtype: str
) -> Iterator[tuple[str, float]]:
  """Times every formulation.

  Args:
    batch: number of completions.
    heads: number of query heads.
    kv_heads: number of key heads.
    slots: number of keys.
    width: width of a head.
    dtype: dtype of keys and values.

  Yields:
    Names such as `scores product`, and microseconds.
  """
  repeats = heads // kv_heads
  for part, functions, size in (("scores", SCORES, width), ("mix", MIX, slots)):
    left = jnp.ones((batch, kv_heads, repeats, size), dtype)
    for name, (layout, function) in functions.items():
      stored = (slots, width) if layout == "slots" else (width, slots)
      memory = jnp.ones((batch, kv_heads, *stored), dtype)
      call = jax.jit(function)
      yield (
        f"{part} {name}",
        1e6 * seconds(lambda call=call, left=left, memory=memory: call(left, memory)),
      )


def decoder_step(
  batch: int, heads: int, kv_heads: int, slots: int, width: int, dtype: str
) -> float:
  """Times a step of a decoder of one layer, in microseconds; see `formulations`."""
  model = Decoder(
    DecoderConfig(
      vocab_size=4,
      num_layers=1,
      embed_dim=8,
      num_heads=heads,
      num_kv_heads=kv_heads,
      head_dim=width,
      mlp_dim=8,
      dtype=dtype,
    )
  )
  params = init_params(model, jax.random.key(0))
  token = jnp.ones((1, 1), jnp.int32)
  cache = read_prompts(model, params, token, token == 1).cache
  cache = with_slots(cache, 1, batch, slots)
  # All slots are written, and the step writes the last one.
  written = jnp.broadcast_to(jnp.arange(1, slots + 1), cache.suffix.positions.shape)
  suffix = cache.suffix.replace(positions=written.astype(jnp.int32))
  # A step donates the cache, whose buffers must not be shared.
  kept = [jax.tree.map(jnp.copy, cache.replace(suffix=suffix))]
  tokens = jnp.ones((1, batch, 1), jnp.int32)

  def one(params, cache):
    cache = cache.replace(index=jnp.int32(slots - 1))
    output = model.apply(params, tokens, tokens * slots, cache, method=model.features)
    return output.hidden, output.cache

  step = jax.jit(one, donate_argnums=1)

  def call() -> Array:
    hidden, kept[0] = step(params, kept[0])
    return hidden

  return 1e6 * seconds(call)


def measure(
  heads: int, width: int, dtype: str, rows: tuple[int, ...], slots: tuple[int, ...]
) -> list[dict[str, Any]]:
  """Times attention for every ratio of heads, number of rows and number of slots.

  Args:
    heads: number of query heads.
    width: width of a head.
    dtype: dtype of keys and values.
    rows: numbers of completions.
    slots: numbers of keys.

  Returns:
    A dictionary for each shape, with its sizes and `us`, microseconds by name.
  """
  results = []
  for kv_heads in key_heads(heads):
    for batch in rows:
      for count in slots:
        shape = (batch, heads, kv_heads, count, width, dtype)
        times = dict(formulations(*shape)) | {"decoder": decoder_step(*shape)}
        sizes = {"heads": heads, "kv_heads": kv_heads, "rows": batch, "slots": count}
        results.append({**sizes, "us": times})
  return results


def format_table(results: list[dict[str, Any]]) -> str:
  """Formats the grid in microseconds; the fastest scores and average are bold."""
  sizes, names = ("heads", "kv_heads", "rows", "slots"), list(results[0]["us"])
  rows = [(*sizes, *names)]
  for result in results:
    times = result["us"]
    best = {
      min((name for name in names if name.startswith(part)), key=times.get)
      for part in ("scores", "mix")
    }
    cells = (f"**{times[x]:,.0f}**" if x in best else f"{times[x]:,.0f}" for x in names)
    rows.append((*(str(result[size]) for size in sizes), *cells))
  return table(rows)
