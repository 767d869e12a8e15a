"""Which mesh axes an array is sharded over, and products whose gradients are not narrow."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh, AxisType
from jax.sharding import PartitionSpec as P

from pgax.distributed.partitioning import (
  _DECODING,
  _TRAINING,
  decoding_layout,
  training_layout,
  undivided,
)
from pgax.models import Decoder
from pgax.models.layers import product
from pgax.models.layout import BATCH, Layout
from tests import tiny

MESH = AbstractMesh((2, 4, 3), ("data", "fsdp", "model"), (AxisType.Auto,) * 3)


@pytest.mark.parametrize(
  ("rules", "names", "shape", "expected"),
  [
    (_TRAINING, ("embed", "heads", "head"), (8, 6, 5), P("fsdp", "model", None)),
    (_TRAINING, (BATCH, None, "heads"), (16, 2, 6), P(("data", "fsdp"), None, "model")),
    # Rows take what columns leave.
    (_TRAINING, (BATCH, None, "embed"), (16, 2, 8), P("data", None, "fsdp")),
    (_DECODING, (BATCH, "mlp"), (16, 24), P("data", ("fsdp", "model"))),
    (_DECODING, (BATCH, "attended_heads"), (16, 6), P(("data", "fsdp"), "model")),
    # What does not divide: the last axes that do, or none.
    (_DECODING, (BATCH, "heads"), (16, 6), P(("data", "fsdp"), "model")),
    (_DECODING, ("vocab", "embed"), (7, 8), P(None, None)),
    (_TRAINING, (BATCH,), (4,), P("fsdp")),
    (_TRAINING, (BATCH,), (3,), P(None)),
    (_TRAINING, ("kv_heads",), (2,), P(None)),
  ],
)
def test_axes_by_their_names(rules, names, shape, expected):
  assert Layout(MESH, rules).spec(names, shape) == expected


def test_a_name_without_a_rule_is_an_error():
  with pytest.raises(KeyError, match="width"):
    Layout(MESH, _TRAINING).spec(("width",), (8,))


def test_one_device_has_no_layout():
  one = AbstractMesh((1, 1, 1), MESH.axis_names, (AxisType.Auto,) * 3)
  assert training_layout(one) is decoding_layout(one) is None


def test_what_is_replicated_is_said():
  said = undivided(Decoder(tiny.CONFIG), MESH)
  assert any("model.num_kv_heads, is 2, which mesh.model = 3" in x for x in said)
  assert any("model.vocab_size, is 260, which mesh.model = 3" in x for x in said)
  assert not any("embed_dim" in x for x in said)  # 32 by 4
  assert len(said) == len(set(said))


@pytest.mark.parametrize(("shape", "inputs"), [((6, 5), 1), ((6, 4, 3), 1), ((4, 3, 6), 2)])
def test_the_gradient_of_a_narrow_product_is_wide(shape, inputs):
  keys = jax.random.split(jax.random.key(0), 3)
  x = jax.random.normal(keys[0], (9, 2, *shape[:inputs]), jnp.bfloat16)
  weight = jax.random.normal(keys[1], shape)
  outputs = jax.random.normal(keys[2], (9, 2, *shape[inputs:]), jnp.bfloat16)

  def loss(x, weight):
    out = product(x, weight, inputs)
    assert out.dtype == x.dtype
    return jnp.vdot(out.astype(jnp.float32), outputs.astype(jnp.float32))

  def wide(x, weight):
    return jnp.vdot(jnp.tensordot(x, weight, inputs), outputs.astype(jnp.float32))

  of_x, of_weight = jax.grad(loss, argnums=(0, 1))(x, weight)
  rounded = (y.astype(jnp.bfloat16).astype(jnp.float32) for y in (x, weight))
  x_wide, weight_wide = jax.grad(wide, argnums=(0, 1))(*rounded)
  np.testing.assert_allclose(of_weight, weight_wide, rtol=1e-5, atol=1e-5)
  assert of_x.dtype == jnp.bfloat16 and of_weight.dtype == jnp.float32
  np.testing.assert_allclose(of_x, x_wide.astype(jnp.bfloat16), rtol=2e-2, atol=2e-2)
  # Not a rounded sum: bfloat16 can't hold it.
  assert np.any(of_weight != of_weight.astype(jnp.bfloat16).astype(jnp.float32))
