"""Attention in blocks is that of one product, in models of many families."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pgax.models import Decoder
from pgax.models.hf import load_config
from tests import tiny
from tests.logits import completion_logits
from tests.models.hf import families

PROMPT, NEW, GROUP = 11, 13, 2  # longer than the window, and no multiples of a block
DRAWN = np.random.default_rng(0).integers(3, families.VOCAB, (2, GROUP + 1, NEW))
TOKENS = DRAWN.astype(np.int32)
PROMPT_MASK = np.arange(PROMPT) < np.array([[PROMPT], [6]])
MASK = np.arange(NEW) < np.array([[NEW, 4], [9, NEW]])[..., None]
# Between them they have windows, softcaps, norms of heads, and scaled rotations.
NAMES = ("gemma2", "gemma3", "phi3_longrope", "qwen3")
CASES = [case for case in families.CASES if case.name in NAMES]


def value_and_gradient(config, params, attention):
  model = Decoder(dataclasses.replace(config, attention=attention))

  @jax.jit
  @jax.value_and_grad
  def loss(params):
    prompts = TOKENS[:, 0, :PROMPT]
    logits = completion_logits(model, params, prompts, PROMPT_MASK, TOKENS[:, 1:], MASK)
    logp = jax.nn.log_softmax(logits)
    chosen = jnp.take_along_axis(logp, TOKENS[:, 1:, :, None], axis=-1)[..., 0]
    return -jnp.sum(jnp.where(MASK, chosen, 0)) / MASK.sum()

  return loss(params)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_blocks_change_nothing(case, tmp_path):
  families.write(case, tmp_path)
  config = load_config(tmp_path)
  params = tiny.fresh(Decoder(config))
  expected, gradient = value_and_gradient(config, params, "einsum")
  value, other = value_and_gradient(config, params, "blockwise")
  np.testing.assert_allclose(value, expected, rtol=1e-5)
  for x, y in zip(*map(jax.tree.leaves, (other, gradient)), strict=True):
    np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)
