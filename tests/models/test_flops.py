"""Floating-point operations: two for every parameter of a matrix that is used."""

import dataclasses

import jax
import numpy as np
import pytest

from pgax.distributed.peak import peak_flops
from pgax.models.decoder import Decoder
from pgax.models.flops import token_flops
from pgax.models.parameters import init_params, matrices
from tests import tiny


def matrix_parameters(config):
  params = jax.eval_shape(lambda: init_params(Decoder(config), jax.random.key(0)))
  flags = matrices(params)
  sizes = jax.tree.map(lambda x, is_matrix: x.size * is_matrix, params, flags)
  return sum(jax.tree.leaves(sizes))


def test_two_operations_for_every_parameter():
  # A tied embedding is the matrix of the unembedding.
  assert token_flops(tiny.CONFIG) == 2 * matrix_parameters(tiny.CONFIG)
  untied = dataclasses.replace(tiny.CONFIG, tie_embeddings=False)
  lookup = untied.vocab_size * untied.embed_dim
  assert token_flops(untied) == 2 * (matrix_parameters(untied) - lookup)


def test_scores_of_attention_grow_with_the_context():
  features = tiny.CONFIG.num_layers * tiny.CONFIG.num_heads * tiny.CONFIG.head_dim
  difference = token_flops(tiny.CONFIG, 100.0) - token_flops(tiny.CONFIG)
  assert difference == 4 * features * 100


def test_only_the_chosen_experts_count():
  experts = dataclasses.replace(tiny.CONFIG, num_experts=4, experts_per_token=2)
  more = token_flops(experts) - token_flops(tiny.CONFIG)
  one = 3 * tiny.CONFIG.embed_dim * tiny.CONFIG.mlp_dim
  router = 4 * tiny.CONFIG.embed_dim
  assert more == 2 * tiny.CONFIG.num_layers * (one + router)
  assert np.isfinite(more)


@pytest.mark.parametrize(
  ("kind", "peak"),
  [("NVIDIA H100 80GB HBM3", 989e12), ("TPU v5 lite", 197e12), ("cpu", None)],
)
def test_peaks_of_known_devices(kind, peak):
  assert peak_flops(kind=kind) == peak
  assert peak_flops(5.0, kind) == 5.0
