"""cuDNN's kernels: their calls, in a program for a GPU, and what is made of their results.

No GPU computes here. A reference in JAX does what cuDNN documents of its kernels.
"""

import functools
import re

import jax
import jax.numpy as jnp
import pytest

from pgax.errors import UserError
from pgax.models.attend import Part, Places, Scores, attend, merged
from pgax.models.attend.cudnn import Cudnn
from tests.models.attend.cases import D, compare, make


def _scores(queries, keys, masks, scale):
  """Scores of cuDNN, and which keys rows attend to."""
  repeats = queries.shape[1] // keys.shape[1]
  scores = jnp.einsum("bhld,bhsd->bhls", queries, jnp.repeat(keys, repeats, 1)) * scale
  row, key = jnp.arange(queries.shape[2])[:, None], jnp.arange(keys.shape[2])
  seen = (key < masks.keys[:, None, None]) & (row < masks.rows[:, None, None])
  return scores, (seen & (key <= row) if masks.causal else seen)[:, None]


def forward(queries, keys, values, masks, scale):
  """Averages and log-sums; nan for padding, of which cuDNN promises nothing."""
  scores, seen = _scores(queries, keys, masks, scale)
  log_sum = jax.nn.logsumexp(jnp.where(seen, scores, -jnp.inf), axis=-1)
  probs = jnp.where(seen, jnp.exp(scores - log_sum[..., None]), 0)
  values = jnp.repeat(values, queries.shape[1] // values.shape[1], 1)
  real = jnp.any(seen, axis=-1)
  mixed = jnp.einsum("bhls,bhsd->bhld", probs, values)
  return jnp.where(real[..., None], mixed, jnp.nan), jnp.where(real, log_sum, jnp.nan)


def backward(queries, keys, values, masks, scale, merged, gradient):
  """Gradients, nan for padding, from the given averages and log-sums."""
  mixed, log_sum = merged
  repeats = queries.shape[1] // keys.shape[1]
  scores, seen = _scores(queries, keys, masks, scale)
  probs = jnp.where(seen, jnp.exp(scores - log_sum[..., None]), 0)
  of_probs = jnp.einsum("bhld,bhsd->bhls", gradient, jnp.repeat(values, repeats, 1))
  inside = jnp.sum(gradient * mixed, axis=-1, keepdims=True)
  of_scores = jnp.where(seen, probs * (of_probs - inside) * scale, 0)

  def of_keys(left, right):
    whole = jnp.einsum("bhls,bhld->bhsd", left, right)
    sums = jnp.sum(whole.reshape(*keys.shape[:2], repeats, *keys.shape[2:]), axis=2)
    return jnp.where(jnp.any(seen, axis=(1, 2))[:, None, :, None], sums, jnp.nan)

  of_queries = jnp.einsum("bhls,bhsd->bhld", of_scores, jnp.repeat(keys, repeats, 1))
  of_queries = jnp.where(jnp.any(seen, axis=-1)[..., None], of_queries, jnp.nan)
  safe = (jnp.where(jnp.any(seen, -1)[..., None], x, 0) for x in (queries, gradient))
  queries, gradient = safe
  return of_queries, of_keys(of_scores, queries), of_keys(probs, gradient)


@pytest.mark.parametrize(("repeats", "shared"), [(2, True), (1, False)])
def test_values_and_gradients(repeats, shared):
  by_reference = functools.partial(merged.attend, kernel=Cudnn(forward, backward))
  compare(by_reference, make(repeats, shared=shared), None, Scores(D**-0.5), 1e-5)


def test_tokens_in_any_order():
  by_reference = functools.partial(merged.attend, kernel=Cudnn(forward, backward))
  queries, parts, where, cotangent = make(2)
  order = jax.random.permutation(jax.random.key(0), queries.shape[2])
  positions = where.positions[:, :, order]
  own = Part(*(x[:, :, :, order] for x in parts[1][:2]), positions)
  prompt = Part(*(x[:, :, :, ::-1] for x in parts[0][:2]), parts[0].positions[..., ::-1])
  given = (queries[:, :, order], (prompt, own), Places(positions), cotangent[:, :, order])
  compare(by_reference, given, None, Scores(D**-0.5), 1e-5)


def test_calls_in_a_program_for_a_gpu():
  queries, parts, where, _ = make(2, dtype=jnp.bfloat16)

  def loss(queries, pairs):
    positions = parts[0].positions, where.positions
    whole = tuple(Part(*x) for x in zip(*zip(*pairs, strict=True), positions, strict=True))
    mixed, _ = attend(queries, whole, where, None, Scores(0.25), "cudnn")
    return jnp.sum(mixed**2)

  traced = jax.jit(jax.grad(loss, argnums=(0, 1))).trace(queries, [x[:2] for x in parts])
  text = traced.lower(lowering_platforms=("cuda",)).as_text()
  lines = [x for x in text.splitlines() if "@__cudnn$" in x]
  kinds = [re.search(r"@__cudnn\$(\w+)", line)[1] for line in lines]
  assert kinds == ["fmhaSoftmax"] * 2 + ["fmhaSoftmaxBackward"] * 2
  masks = [re.search(r"mask_type\\22: \\22(\w+)\\22", line)[1] for line in lines]
  assert masks == ["PADDING", "PADDING_CAUSAL"] * 2
  assert all(r"fmha_scale\22: 0.25" in line for line in lines)
  # Log-sums are exact: float32, though everything else is bfloat16.
  for line in lines[2:]:
    operands = re.search(r": \((.*?)\) -> ", line)[1].split(", ")
    dtypes = [re.search(r"x([a-z]+\d+)>", operand)[1] for operand in operands]
    assert dtypes == ["bf16"] * 3 + ["f32"] + ["bf16"] * 2 + ["i32"] * 2


@pytest.mark.parametrize(
  ("change", "message"),
  [
    ({"dtype": jnp.float32}, "the dtype is float32; it must be bfloat16 or float16"),
    ({"softcap": 2.0}, "attention_softcap is 2.0; it must be 0"),
    ({"window": 4}, "sliding windows"),
    ({"segments": True}, "rows hold several texts"),
    ({"size": 12}, "head_dim is 12; it must be a multiple of 8, at most 128"),
  ],
)
def test_what_it_cannot_do_is_an_error_if_forced(change, message):
  settings = {"dtype": jnp.bfloat16, "segments": False} | change
  queries, parts, where, _ = make(1, dtype=settings["dtype"], segments=settings["segments"])
  size = change.get("size", D)
  queries = jnp.resize(queries, (*queries.shape[:-1], size))
  scores = Scores(1.0, change.get("softcap", 0.0))
  with pytest.raises(UserError, match=message):
    attend(queries, parts, where, change.get("window"), scores, "cudnn")
  attend(queries[..., :D], parts, where, change.get("window"), scores, "auto")
