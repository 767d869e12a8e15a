"""Token weights: worked numbers, a plain reference, and their invariances."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgax import aggregation
from tests import references
from tests.strategies import TOKENS, floats, masks

WEIGHTS = {
  "sequence_mean": aggregation.sequence_mean,
  "token_mean": aggregation.token_mean,
  "fixed_length": lambda mask: aggregation.fixed_length(mask, 7),
  "sequence_sum": aggregation.sequence_sum,
}


def test_worked_losses():
  losses = np.array([[1, 1, 1, 1, 10] + [0] * 5, [1] * 9 + [10]], np.float32)
  mask = np.arange(10) < np.array([[5], [10]])
  assert np.sum(aggregation.sequence_mean(mask) * losses) == pytest.approx(2.35)
  assert np.sum(aggregation.token_mean(mask) * losses) == pytest.approx(2.2)
  assert np.sum(aggregation.sequence_sum(mask) * losses) == pytest.approx(33 / 2)


def test_rows_of_several_sequences():
  mask = np.arange(7) < np.array([[4], [7], [0]])
  for kind in (aggregation.sequence_sum, lambda m, n: aggregation.fixed_length(m, 1.0, n)):
    np.testing.assert_allclose(np.asarray(kind(mask, 5))[mask], 1 / 5)
    assert not np.any(kind(mask, 0))


def test_worked_gradients():
  mask = np.arange(7) < np.array([[4], [7]])
  by_sequence = np.asarray(aggregation.sequence_mean(mask))
  np.testing.assert_allclose(by_sequence[:, 0], [1 / 8, 1 / 14])
  np.testing.assert_allclose(2 * by_sequence[:, 0], [0.25, 0.1429], atol=1e-4)
  fixed = np.asarray(aggregation.fixed_length(mask, 7))
  np.testing.assert_allclose(2 * fixed[mask], 0.1429, atol=1e-4)
  np.testing.assert_allclose((2 * 2 * fixed * mask).sum(-1), [1.1429, 2], atol=1e-4)
  np.testing.assert_allclose(
    np.asarray(aggregation.token_mean(mask))[mask], 0.0909, atol=1e-4
  )


@pytest.mark.parametrize("kind", WEIGHTS)
@given(mask=masks())
def test_matches_reference(kind, mask):
  np.testing.assert_allclose(
    WEIGHTS[kind](mask), references.weights(mask, kind, 7), rtol=1e-6
  )


@pytest.mark.parametrize("kind", WEIGHTS)
@given(mask=masks())
def test_padding_columns_and_empty_sequences_change_nothing(kind, mask):
  weights = np.asarray(WEIGHTS[kind](mask))
  wider = np.concatenate([mask, np.zeros_like(mask)], axis=-1)
  np.testing.assert_array_equal(WEIGHTS[kind](wider)[..., : mask.shape[-1]], weights)
  more = np.concatenate([mask, np.zeros_like(mask)], axis=0)
  np.testing.assert_array_equal(WEIGHTS[kind](more)[: mask.shape[0]], weights)
  assert np.all(weights[~mask] == 0)


@pytest.mark.parametrize("kind", WEIGHTS)
@given(mask=masks(), losses=floats(TOKENS), order=st.permutations(range(TOKENS[0])))
def test_neither_the_split_nor_the_order_changes_the_loss(kind, mask, losses, order):
  weights = np.asarray(WEIGHTS[kind](mask), np.float64)
  total = np.sum(weights * losses)
  parts = [np.sum(weights[n] * losses[n]) for n in range(TOKENS[0])]
  assert sum(parts) == pytest.approx(total, abs=1e-6)
  result = np.sum(np.asarray(WEIGHTS[kind](mask[order]), np.float64) * losses[order])
  assert result == pytest.approx(total, abs=1e-4)


def test_the_mean_of_means_of_microbatches_is_another_loss():
  losses = np.array([[1, 1, 1, 1, 10] + [0] * 5, [1] * 9 + [10]], np.float32)
  mask = np.arange(10) < np.array([[5], [10]])
  apart = [np.sum(aggregation.token_mean(m) * x) for m, x in zip(mask, losses, strict=True)]
  assert np.mean(apart) == pytest.approx(2.35)  # and the token mean is 2.2


@pytest.mark.parametrize("kind", WEIGHTS)
def test_empty_batch_has_no_weight(kind):
  assert np.all(np.asarray(WEIGHTS[kind](np.zeros((2, 3), bool))) == 0)


@pytest.mark.parametrize("limit", [0, -3])
def test_fixed_length_needs_a_length(limit):
  with pytest.raises(ValueError, match=f"max_length is {limit}"):
    aggregation.fixed_length(np.ones((2, 3)), limit)
