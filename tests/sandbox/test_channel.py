"""Messages between processes: plain data survives, and anything else is rejected."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgax.sandbox.channel import ChannelError, decode, encode

PLAIN = st.recursive(
  st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
  lambda inner: st.lists(inner) | st.tuples(inner) | st.dictionaries(st.text(), inner),
)


def reject(value):
  raise AssertionError(value)


@given(PLAIN)
def test_plain_data_survives_a_round_trip(value):
  assert repr(decode(encode(value, reject), reject)) == repr(value)


@pytest.mark.parametrize(
  "value",
  [
    {},
    {"int": "x"},
    {"int": 5},
    {"set": [[]]},
    {"dict": [1]},
    {"dict": [[[], 1]]},
    {"fraction": ["0x1", "0x0"]},
    {"complex": [1, 2, 3]},
    {"slice": [1]},
    {"range": ["0x0", "0x1", "0x0"]},
    {"bytes": "zz"},
    {"code": "x"},
    {"tuple": [], "list": []},
    {"reference": "x"},
  ],
)
def test_invalid_data_is_rejected(value):
  with pytest.raises(ChannelError):
    decode(value, reject)
