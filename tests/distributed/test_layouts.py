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
  return model, json.loads(printed.splitlines()[-1])


def shapes(collective) -> list[list[int]]:
  """Shapes of the arrays that a collective sends."""
  arrays = re.findall(r"\[([\d,]*)\]", collective["shape"])
  return [[int(x) for x in array.split(",") if x] for array in arrays]


def parts(size: int) -> set[int]:
  """Sizes of an axis on a device, however many devices share it."""
  return {size // n for n in (1, 2, 4, 8) if size % n == 0}


def test_an_update_sends_about_what_the_plan_says(programs):
  model, compiled = programs
  planned = _planned(model)
  sent = sum(x["total"] for x in compiled["train"])
  assert not any(x["in_open_loop"] for x in compiled["train"])
  assert planned / 2 < sent < 1.5 * planned


def _planned(model: int) -> float:
  """Bytes of all collectives of an update, by hand: GRPO with a reference, rematerialized.

  Prompts and completions are two passes through the layers. Matrices are collected in the
  reference's pass, in the policy's and in its backward pass; gradients are summed once.
  """
  s, layers = SIZES, 2
  heads = s["embed_dim"] * s["head_dim"] * 2 * (s["num_heads"] + s["num_kv_heads"])
  matrices = layers * (heads + 3 * s["embed_dim"] * s["mlp_dim"]) / model
  table = s["embed_dim"] * s["vocab_size"] / model
  collected = 2 * 3 * matrices + 3 * table
  summed = 2 * matrices + 2 * table
  devices = 8 // model
  tokens = PROMPTS * (GROUP * LENGTH + 5) / devices
  residual = tokens * s["embed_dim"]
  # Rows and columns of the embedding change places; over `model`, every layer's two outputs
  # are summed, twice as often going back.
  activations = 3 * residual + (8 * layers * residual if model > 1 else 0)
  return _BYTES * (collected + summed + activations)


def test_no_logits_are_sent(programs):
  _, compiled = programs
  vocabulary = parts(SIZES["vocab_size"]) - parts(SIZES["embed_dim"])
  for collective in compiled["train"]:
    for shape in shapes(collective):
      # A table is [V, E]; anything else with an axis of tokens has rows as well.
      is_table = len(shape) <= 3 and set(shape) & parts(SIZES["embed_dim"])
      assert is_table or not set(shape) & vocabulary, collective


def test_decoding_sends_no_parameters_and_no_cache(programs):
  _, compiled = programs
  embed = parts(SIZES["embed_dim"])
  loop = [x for x in compiled["decode"] if x["in_open_loop"]]
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
