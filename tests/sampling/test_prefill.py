"""Prompts that are read in parts are the same as those that are read at once."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pgax.models import Decoder
from pgax.models.parameters import init_params
from pgax.sampling import prefill
from tests import tiny

LENGTHS = (1, 4, 5, 11)  # of parts of 4: one, a full one, and more
EXPERTS = {"num_experts": 4, "experts_per_token": 2}


@pytest.mark.parametrize("settings", [{"sliding_window": 3}, EXPERTS])
def test_parts_change_nothing(monkeypatch, settings):
  model = Decoder(dataclasses.replace(tiny.CONFIG, **settings))
  params = tiny.fresh(model)
  tokens, mask = tiny.prompts(lengths=LENGTHS, width=11)

  def read():
    return jax.jit(lambda: prefill.prefill(model, params, tokens, jnp.asarray(mask)))()

  whole = read()
  monkeypatch.setattr(prefill, "_CHUNK", 4)
  parts = read()
  np.testing.assert_allclose(parts.hidden, whole.hidden, atol=2e-5)
  prefixes = parts.cache.prefix, whole.cache.prefix
  np.testing.assert_array_equal(*(x.positions for x in prefixes))
  real = np.asarray(mask)[None, :, None, None, :, None]
  for name in ("keys", "values"):
    ours, theirs = (getattr(x, name) * real for x in prefixes)
    np.testing.assert_allclose(ours, theirs, atol=2e-5)
  assert (whole.routing is None) == ("num_experts" not in settings)
  if whole.routing is not None:
    chosen = [x.routing.experts[:, 0][mask] for x in (parts, whole)]
    np.testing.assert_array_equal(*chosen)
    loads = parts.routing.load, whole.routing.load
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4), *loads)


def test_parts_of_a_long_prompt_take_a_part_of_the_memory(monkeypatch):
  model = Decoder(dataclasses.replace(tiny.CONFIG, mlp_dim=512))
  params = jax.eval_shape(lambda: init_params(model, jax.random.key(0)))

  def temporaries():
    arrays = [jax.ShapeDtypeStruct((2, 4096), kind) for kind in (jnp.int32, bool)]
    run = jax.jit(lambda *x: prefill.prefill(model, *x))
    return run.lower(params, *arrays).compile().memory_analysis().temp_size_in_bytes

  parts = temporaries()
  monkeypatch.setattr(prefill, "_CHUNK", 4096)
  assert parts < 0.4 * temporaries()
