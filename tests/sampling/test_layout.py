"""The compiled sampler neither copies nor slices the cache in its loop."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pgax.sampling import Options, decode
from tests.tiny import CONFIG, MODEL, params, prompts

GROUP, TOKENS = 3, 32
# What passes a cache on, and what writes a token into it.
ALLOWED = re.compile(r"parameter|get-tuple-element|tuple|while|dynamic-update-slice")


def moved_caches(shape, unrolled, monkeypatch):
  """Operations in loops whose result is as large as a layer's keys, except writes."""
  monkeypatch.setattr(decode, "decodes_unrolled", lambda config: unrolled)
  jax.clear_caches()
  tokens, mask = map(jnp.asarray, prompts())
  keys = decode.prompt_keys(jax.random.key(0), len(tokens))
  options = decode.canonical(Options(np.array([2])))
  compiled = decode._decode.lower(
    MODEL,
    params(),
    tokens,
    mask,
    keys,
    options,
    shape=shape,
    group=GROUP,
    max_tokens=TOKENS,
  ).compile()
  size = np.prod(shape) * CONFIG.num_kv_heads * TOKENS * CONFIG.head_dim
  return [line for line in loop_lines(compiled.as_text()) if elements(line) >= size]


def loop_lines(text):
  """Lines of the bodies of all loops, without the operations that are allowed."""
  bodies = set(re.findall(r"body=(%[\w.-]+)", text))
  inside, lines = False, []
  for line in text.splitlines():
    if line.endswith("{") and not line.startswith(" "):
      inside = line.split()[0] in bodies
    elif inside and " = " in line:
      name, operation = line.split(" = ", 1)
      kind = re.search(r" ([a-z][\w-]*)\(", f" {operation}")[1]
      if not ALLOWED.search(f"{kind} {name}"):
        lines.append(operation)
  return lines


def elements(line):
  """Number of elements of the result of an operation with one result."""
  dims = re.match(r"\w+\[([\d,]*)\]", line)
  return np.prod([int(x) for x in dims[1].split(",") if x]) if dims else 0


@pytest.mark.parametrize("shape", [(4, 3), (1, 6)])
def test_the_loop_writes_tokens_in_place(shape, monkeypatch):
  assert moved_caches(shape, True, monkeypatch) == []
  assert moved_caches(shape, False, monkeypatch)  # a scan over layers slices them
