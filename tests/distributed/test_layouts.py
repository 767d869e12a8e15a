"""What devices send each other: read from compiled programs, not from numbers."""

import json
import re

import pytest

from tests.devices import run_on_devices
from tests.distributed.compiled_layouts import GROUP, LENGTH, PROMPTS, SIZES

_BYTES = 4  # CPUs compute bfloat16 products, and send their operands, in float32


@pytest.fixture(
  scope="module",
  params=[pytest.param((8, 1), id="fsdp 8"), pytest.param((2, 2), id="2 x 2 x 2")],
)
def programs(request):
  fsdp, model = request.param
  printed = run_on_devices(8, "tests.distributed.compiled_layouts", fsdp, model)
  return json.loads(printed.splitlines()[-1])


def shapes(collective) -> list[list[int]]:
  """Shapes of the arrays that a collective sends."""
  arrays = re.findall(r"\[([\d,]*)\]", collective["shape"])
  return [[int(x) for x in array.split(",") if x] for array in arrays]


def parts(size: int) -> set[int]:
  """Sizes of an axis on a device, however many devices share it."""
  return {size // n for n in (1, 2, 4, 8) if size % n == 0}


def test_an_update_sends_about_what_the_plan_says(programs):
  sent = sum(x["total"] for x in programs["train"])
  assert not any(x["in_open_loop"] for x in programs["train"])
  assert programs["planned"] / 1.5 < sent < 1.5 * programs["planned"]


def test_no_logits_are_sent(programs):
  vocabulary = parts(SIZES["vocab_size"]) - parts(SIZES["embed_dim"])
  for collective in programs["train"]:
    for shape in shapes(collective):
      # A table is [V, E]; anything else with an axis of tokens has rows as well.
      is_table = len(shape) <= 3 and set(shape) & parts(SIZES["embed_dim"])
      assert is_table or not set(shape) & vocabulary, collective


def test_decoding_sends_no_parameters_and_no_cache(programs):
  embed = parts(SIZES["embed_dim"])
  loop = [x for x in programs["decode"] if x["in_open_loop"]]
  assert loop
  for collective in loop:
    for shape in shapes(collective):
      for wide in (parts(SIZES["mlp_dim"]), parts(SIZES["vocab_size"])):
        assert not (set(shape) & embed and set(shape) & (wide - embed)), collective
      assert not {SIZES["embed_dim"], SIZES["head_dim"]} <= set(shape), collective
      assert not {LENGTH, SIZES["head_dim"]} <= set(shape), collective
  # All of it are hidden states, logits and flags of the tokens of a step.
  rows = PROMPTS * GROUP
  widths = 12 * SIZES["embed_dim"] + 4 * SIZES["vocab_size"]
  assert sum(x["total"] for x in loop) < _BYTES * rows * widths
