"""Times the sampler: `python -m experiments.benchmarks.sampler [--peer=transformers]`.

Prints tokens per second of prefill and decode, the fraction of the machine's limits that
this is, and the number of decoding steps for skewed lengths in slots that are refilled.
"""

import functools
import importlib

import jax
import jax.numpy as jnp
import numpy as np
from absl import app, flags

from experiments.benchmarks.timing import measure, table
from experiments.benchmarks.workload import (
  CONFIG,
  GROUP,
  MODEL,
  NEW_TOKENS,
  NO_EOS,
  PROMPT_TOKENS,
  PROMPTS,
  fresh_params,
  measure_machine,
  pin,
  prompts,
  token_flops,
)
from pgax.models.scoring import read_prompts
from pgax.sampling import Options, logit_bias, sample, sample_counted
from pgax.types import PyTree

_PEER = flags.DEFINE_enum("peer", None, ["transformers"], "Library to compare with.")
_THREADS = flags.DEFINE_integer("threads", 2, "Number of cores.", lower_bound=1)
_ROUNDS = flags.DEFINE_integer("rounds", 5, "Number of timed calls.", lower_bound=1)


def _speed(params: PyTree) -> list[tuple[str, ...]]:
  tokens, mask = prompts()
  keys = iter(jax.random.split(jax.random.key(2), 1000))
  prefill = jax.jit(functools.partial(read_prompts, MODEL))
  calls = {
    "prefill": lambda: prefill(params, tokens, mask)[0],
    "sample": lambda: sample(
      MODEL,
      params,
      tokens,
      mask,
      next(keys),
      Options(NO_EOS),
      group=GROUP,
      max_tokens=NEW_TOKENS,
    ),
  }
  if _PEER.value:
    # Imported here, so that torch is needed for the comparison only.
    peers = importlib.import_module("experiments.benchmarks.peers")
    calls["generate"] = peers.generate(peers.load(params, _THREADS.value), tokens)
  machine, times = measure_machine(), measure(calls, _ROUNDS.value)
  prompt_count, new_count = PROMPTS * PROMPT_TOKENS, PROMPTS * GROUP * NEW_TOKENS
  decoding = times["sample"].wall - times["prefill"].wall
  prompt_flops = prompt_count * token_flops(PROMPT_TOKENS / 2, logits=False)
  decode_flops = new_count * token_flops(PROMPT_TOKENS + NEW_TOKENS / 2)
  size = 4 * sum(x.size for x in jax.tree.leaves(params))
  a_token = 4 * 2 * CONFIG.num_layers * CONFIG.num_kv_heads * CONFIG.head_dim
  # A step reads the parameters, every prompt once, and all suffixes at full length.
  step = size + a_token * PROMPTS * (PROMPT_TOKENS + GROUP * NEW_TOKENS)

  def row(name: str, count: int, seconds: float, flops: float, traffic: float) -> tuple:
    return (
      name,
      f"{count / seconds:,.0f}",
      f"{flops / seconds / machine.flops:.0%}",
      f"{traffic / seconds / machine.bandwidth:.0%}" if traffic else "",
    )

  print(
    f"machine: {machine.flops / 1e9:.0f} GFLOP/s in a float32 matrix product, "
    f"{machine.bandwidth / 1e9:.1f} GB/s of memory"
  )
  rows = [("", "tokens/s", "of matmul rate", "of bandwidth")]
  rows.append(row("prefill", prompt_count, times["prefill"].wall, prompt_flops, 0))
  rows.append(row("decode", new_count, decoding, decode_flops, step * NEW_TOKENS))
  rows.append(("prefill and decode", f"{new_count / times['sample'].wall:,.0f}", "", ""))
  if _PEER.value:
    ratio = times["generate"].wall / times["sample"].wall
    speed = f"{new_count / times['generate'].wall:,.0f}"
    rows.append((f"generate of {_PEER.value}", speed, f"pgax: {ratio:.2f} x as fast", ""))
  return rows


def _skewed(params: PyTree) -> list[tuple[str, ...]]:
  """Counts decoding steps for geometric lengths, a quarter of the limit on average."""
  rows = [
    ("completions", "slots", "mean length", "steps", "x ideal", "x ideal without refill")
  ]
  rate, eos = 4 / NEW_TOKENS, 2
  for count, slots in ((8, 8), (8, 4), (32, 16), (32, 8)):
    tokens, mask = prompts(count)
    hidden, _ = read_prompts(MODEL, params, tokens, mask)
    logits = MODEL.apply(params, hidden, method=MODEL.unembed)
    others = float(jnp.mean(jax.nn.logsumexp(logits, axis=-1)))
    # The logits of a fresh model hardly vary, so EOS is sampled at nearly this rate.
    height = others + np.log(rate / (1 - rate)) - float(jnp.mean(logits[..., eos]))
    rollout, steps = sample_counted(
      MODEL,
      params,
      tokens,
      mask,
      jax.random.key(3),
      Options(np.array([eos]), logit_bias=logit_bias(CONFIG.vocab_size, {eos: height}, ())),
      group=GROUP,
      max_tokens=NEW_TOKENS,
      slots=slots,
    )
    lengths = np.asarray(rollout.action_mask).sum(-1).ravel()
    ideal = lengths.sum() / slots
    waves = lengths.reshape(-1, slots).max(-1).sum()
    cells = (len(lengths), slots, f"{lengths.mean():.1f}", int(steps))
    rows.append((*map(str, cells), f"{steps / ideal:.2f}", f"{waves / ideal:.2f}"))
  return rows


def main(argv: list[str]) -> None:
  """Measures and prints."""
  del argv
  pin(_THREADS.value)
  params = fresh_params()
  print(table(_speed(params)))
  print()
  print(table(_skewed(params)))


if __name__ == "__main__":
  app.run(main)
