"""Work of decoding completions of skewed lengths in slots that refill."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.benchmarks.report import table
from experiments.benchmarks.shape import Shape
from experiments.benchmarks.sides.with_pgax import decoder_config, prompts
from pgax.models import Decoder
from pgax.models.parameters import init_params
from pgax.models.prompts import read_prompts
from pgax.sampling import Options, logit_bias, sample_counted
from pgax.types import Array, PyTree

PER_SLOT = (8, 16, 32)
_EOS = 2


def measure(shape: Shape) -> list[dict[str, Any]]:
  """Counts decoding steps for geometric lengths, a quarter of `gen_len` on average.

  Args:
    shape: sizes of model and batch.

  Returns:
    A dictionary for each number of slots that divides the completions.
  """
  model = Decoder(decoder_config(shape))
  params = jax.jit(lambda key: init_params(model, key))(jax.random.key(0))
  tokens, mask = prompts(shape)
  height = _eos_bias(model, params, tokens, mask, rate=min(4 / shape.gen_len, 0.5))
  options = Options(
    np.array([_EOS]), logit_bias=logit_bias(shape.vocab, {_EOS: height}, ())
  )
  results = []
  for per_slot in (x for x in PER_SLOT if shape.rows % x == 0):
    slots = shape.rows // per_slot
    rollout, counts = sample_counted(
      model,
      params,
      tokens,
      mask,
      jax.random.key(3),
      options,
      group=shape.group,
      max_tokens=shape.gen_len,
      slots=slots,
    )
    lengths = np.asarray(rollout.action_mask).sum(-1).ravel()
    waves = lengths.reshape(-1, slots).max(-1).sum()
    ideal = lengths.sum() / slots
    results.append(
      {
        "completions": shape.rows,
        "slots": slots,
        "mean_length": float(lengths.mean()),
        "steps": int(counts.steps),
        "of_ideal": float(counts.places / lengths.sum()),
        "of_ideal_without_refill": float(waves / ideal),
      }
    )
  return results


def _eos_bias(
  model: Decoder, params: PyTree, tokens: Array, mask: Array, rate: float
) -> float:
  """Returns the bias of EOS with which it is sampled at about a rate.

  The logits of a fresh model hardly vary, so one bias does for all contexts.
  """
  hidden = read_prompts(model, params, tokens, mask).hidden
  logits = model.apply(params, hidden, method=model.unembed)
  others = float(jnp.mean(jax.nn.logsumexp(logits, axis=-1)))
  return others + np.log(rate / (1 - rate)) - float(jnp.mean(logits[..., _EOS]))


def format_table(results: list[dict[str, Any]]) -> str:
  """Formats the counts; ideal work is one place in a slot for each token."""
  header = (
    "completions",
    "slots",
    "mean length",
    "steps",
    "x ideal",
    "x ideal without refill",
  )
  rows = [header]
  for x in results:
    counts = (str(x["completions"]), str(x["slots"]), f"{x['mean_length']:.1f}")
    ratios = (f"{x['of_ideal']:.2f}", f"{x['of_ideal_without_refill']:.2f}")
    rows.append((*counts, str(x["steps"]), *ratios))
  return table(rows)
