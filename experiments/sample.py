r"""Samples completions of typed prompts: `python -m experiments.sample --workdir=DIR`.

Prompts are read line by line until the end of input, or one is given by `--prompt`. Type a
newline inside a prompt as `\n`; the prompts of the GSM8K config end in one.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np
from absl import flags

from experiments import program
from pgax.distributed.hosts import on_writer, shared_errors, wait_for_all
from pgax.distributed.placement import fetch_first
from pgax.rollout.scoring import completion_texts
from pgax.training.batches import prompt_collator
from pgax.training.policy import load_policy
from pgax.training.saved import saved_run
from pgax.types import Example

_WORKDIR = flags.DEFINE_string("workdir", None, "Folder of the run.", required=True)
_PROMPT = flags.DEFINE_string(
  "prompt", None, "A prompt; read from standard input by default."
)
_GROUP = flags.DEFINE_integer("group", 4, "Completions per prompt.", lower_bound=1)
_TEMPERATURE = flags.DEFINE_float(
  "temperature", 1.0, "Sampling temperature; 0 decodes greedily.", lower_bound=0.0
)
_SEED = flags.DEFINE_integer("seed", 0, "Random seed.")


def _prompts() -> Iterator[str]:
  if _PROMPT.value is not None:
    yield _PROMPT.value
    return
  if sys.stdin.isatty():
    print("Type a prompt, such as 123+456= (end with Ctrl-D).")
  lines = iter(sys.stdin)
  while (line := on_writer(lambda: next(lines, None))) is not None:
    yield line.rstrip("\n")


def main() -> int:
  """Samples completions of every prompt, with their log-probabilities."""
  workdir = Path(_WORKDIR.value)
  with shared_errors():
    run = saved_run(workdir, with_task=False)
    policy = load_policy(run, workdir)
  wait_for_all()
  collate = prompt_collator(run.data, policy.tokenizer, run.sampling.max_prompt_tokens)
  sampler = policy.sampler
  key, status = jax.random.key(_SEED.value), 0
  for prompt in _prompts():
    try:
      example = Example(prompt.replace("\\n", "\n"), "")
      batch = collate([example] * sampler.mesh.size)
    except ValueError as error:
      print(f"error: {error}", file=sys.stderr)
      status = 2
      continue
    key, draw_key = jax.random.split(key)
    rollout = sampler(policy.params, batch, draw_key, _TEMPERATURE.value, _GROUP.value)
    arrays = rollout.tokens, rollout.action_mask, rollout.logp
    tokens, mask, logp = fetch_first(arrays, 1)
    texts = completion_texts(policy.tokenizer, tokens, mask)[0]
    for text, total, length in zip(
      texts, np.sum(logp[0], -1), mask[0].sum(-1), strict=True
    ):
      print(f"log-prob {total:8.3f} over {length} tokens: {text}", flush=True)
  return status


if __name__ == "__main__":
  program.run(main, processes=True)
