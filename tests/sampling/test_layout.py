"""The compiled sampler neither copies nor slices the cache in its loop."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pgax.models import Decoder
from pgax.models.parameters import init_params
from pgax.sampling import Options, decode
from tests.tiny import CONFIG, prompts

TOKENS = 56  # a size that no other axis has
# What passes a cache on, and what writes a token into it.
ALLOWED = re.compile(
  r"parameter|get-tuple-element|tuple|bitcast|while|dynamic-update-slice"
)


def moved_caches(kv_heads, shape, group, unrolled, monkeypatch, slots=None):
  """Operations in loops whose result is as large as a layer's keys, except writes."""
  monkeypatch.setattr(decode, "decodes_unrolled", lambda model: unrolled)
  jax.clear_caches()
  config = dataclasses.replace(CONFIG, num_kv_heads=kv_heads)
  model = Decoder(config)
  tokens, mask = map(jnp.asarray, prompts())
  compiled = decode._decode.lower(
    model,
    jax.eval_shape(lambda: init_params(model, jax.random.key(0))),
    tokens,
    mask,
    decode.prompt_keys(jax.random.key(0), len(tokens)),
    decode.canonical(Options(np.array([2]))),
    shape=shape,
    tail_lanes=1,
    group=group,
    max_tokens=TOKENS,
  ).compile()
  size = (slots or np.prod(shape)) * kv_heads * TOKENS * config.head_dim
  lines = loop_lines(compiled.as_text())
  return [x for x in lines if TOKENS in axes(x) and np.prod(axes(x)) >= size]


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


def axes(line):
  """Sizes of the axes of the result of an operation with one result."""
  found = re.match(r"\w+\[([\d,]+)\]", line)
  return [int(x) for x in found[1].split(",")] if found else []


@pytest.mark.parametrize(
  ("kv_heads", "shape", "group"),
  # Axes of size 1 are what XLA treats differently: lanes, slots of a lane, key heads.
  [(2, (4, 3), 3), (4, (1, 6), 3), (2, (4, 1), 1), (1, (4, 3), 3)],
)
def test_the_loop_writes_tokens_in_place(kv_heads, shape, group, monkeypatch):
  assert moved_caches(kv_heads, shape, group, True, monkeypatch) == []


def test_nor_does_the_loop_of_the_tail_move_it(monkeypatch):
  monkeypatch.setattr(decode, "tail_width", lambda slots, max_tokens: 4)
  # As large as the keys of the tail, which are those of a quarter of the slots.
  assert moved_caches(2, (4, 3), 3, True, monkeypatch, slots=4) == []


def test_a_scan_over_layers_copies_the_cache(monkeypatch):
  """What the test above would miss if it looked for the wrong thing."""
  assert moved_caches(2, (4, 3), 3, False, monkeypatch)


def test_large_models_are_not_copied_for_decoding(monkeypatch):
  monkeypatch.setattr(jax, "default_backend", lambda: "cpu")
  assert decode.decodes_unrolled(Decoder(CONFIG))
  smollm2 = dataclasses.replace(
    CONFIG, num_layers=30, embed_dim=576, num_heads=9, num_kv_heads=3, head_dim=64
  )
  assert not decode.decodes_unrolled(Decoder(dataclasses.replace(smollm2, mlp_dim=1536)))
  assert decode.decodes_unrolled(Decoder(dataclasses.replace(smollm2, mlp_dim=512)))
  monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
  assert not decode.decodes_unrolled(Decoder(CONFIG))
