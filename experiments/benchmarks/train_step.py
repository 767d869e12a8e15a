"""Times an update: `python -m experiments.benchmarks.train_step [--peer=transformers]`.

An update is a GRPO step on completions of full length: log-probabilities of policy and
reference, one gradient, AdamW.
"""

import importlib
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np
from absl import app, flags

from experiments.benchmarks.timing import Time, measure, table
from experiments.benchmarks.workload import (
  GROUP,
  MODEL,
  NEW_TOKENS,
  NO_EOS,
  PROMPT_TOKENS,
  PROMPTS,
  Machine,
  measure_machine,
  pin,
  prompts,
  token_flops,
)
from pgax import algorithms
from pgax.distributed import make_mesh
from pgax.learner import (
  Learner,
  LearnerConfig,
  OptimizerConfig,
  init_state,
  make_policy_step,
)
from pgax.learner.optimizer import make_optimizer
from pgax.sampling import Options, sample
from pgax.types import Feedback, PyTree, Rollout

_PEER = flags.DEFINE_enum("peer", None, ["transformers"], "Library to compare with.")
_THREADS = flags.DEFINE_integer("threads", 2, "Number of cores.", lower_bound=1)
_ROUNDS = flags.DEFINE_integer("rounds", 5, "Number of timed calls.", lower_bound=1)
_MICROBATCHES = flags.DEFINE_integer("microbatches", 1, "Parts of a batch.", lower_bound=1)
_OPTIMIZER = OptimizerConfig(learning_rate=1e-5, warmup_steps=0)
_KL_COEF = 0.04


def main(argv: list[str]) -> None:
  """Measures and prints."""
  del argv
  pin(_THREADS.value)
  learner = Learner(
    MODEL,
    algorithms.grpo(kl_coef=_KL_COEF),
    make_optimizer(_OPTIMIZER),
    config=LearnerConfig(microbatches=_MICROBATCHES.value),
  )
  state = init_state(learner, make_mesh(), seed=0)
  tokens, mask = prompts()
  rollout = sample(
    MODEL,
    state.params,
    tokens,
    mask,
    jax.random.key(1),
    Options(NO_EOS),
    group=GROUP,
    max_tokens=NEW_TOKENS,
  )
  rewards = np.random.default_rng(0).integers(0, 2, (PROMPTS, GROUP)).astype(np.float32)
  feedback = Feedback(jnp.asarray(rewards), jnp.ones(rewards.shape, bool))
  step = make_policy_step(learner)
  peer_calls = {}
  if _PEER.value:
    name = f"torch, model of {_PEER.value}"
    peer_calls[name] = _peer_update(state.params, rollout, rewards)
  latest = [state]

  def ours() -> jax.Array:
    # The step donates its state.
    latest[0], update = step(latest[0], rollout, feedback)
    return update.metrics["grad_norm"]

  calls = {"pgax": ours} | peer_calls
  # The second gradient depends on the first update, and has a KL penalty above 0.
  norms = {name: [float(call()) for _ in range(2)] for name, call in calls.items()}
  if not all(np.allclose(norm, norms["pgax"], rtol=1e-3) for norm in norms.values()):
    raise RuntimeError(f"the gradients differ, so the work is not the same: {norms}")
  machine, times = measure_machine(), measure(calls, _ROUNDS.value)
  print(f"machine: {machine.flops / 1e9:.0f} GFLOP/s in a float32 matrix product")
  print(table(_rows(times, machine)))


def _peer_update(
  params: PyTree, rollout: Rollout, rewards: np.ndarray
) -> Callable[[], float]:
  """Makes the same update in torch, on the same weights and completions."""
  # Imported here, so that torch is needed for the comparison only.
  peers = importlib.import_module("experiments.benchmarks.peers")
  prompt_tokens = np.asarray(rollout.prompt_tokens)[:, None]
  repeated = np.broadcast_to(prompt_tokens, (PROMPTS, GROUP, PROMPT_TOKENS))
  sequences = np.concatenate([repeated, np.asarray(rollout.tokens)], axis=-1)
  rows = (PROMPTS * GROUP, -1)
  return peers.make_update(
    peers.load(params, _THREADS.value),
    sequences.reshape(rows),
    np.asarray(rollout.action_mask).reshape(rows),
    rewards,
    prompt_tokens=PROMPT_TOKENS,
    optimizer=_OPTIMIZER,
    kl_coef=_KL_COEF,
    microbatches=_MICROBATCHES.value,
  )


def _rows(times: Mapping[str, Time], machine: Machine) -> list[tuple[str, ...]]:
  """Formats the times as rows of a table, the header first."""
  forward = PROMPTS * PROMPT_TOKENS * token_flops(PROMPT_TOKENS / 2, logits=False)
  forward += PROMPTS * GROUP * NEW_TOKENS * token_flops(PROMPT_TOKENS + NEW_TOKENS / 2)
  # Two passes for log-probabilities, and a gradient, which costs as much as three.
  share = 5 * forward / times["pgax"].wall / machine.flops
  rows = [("", "tokens/s", "s", "CPU s", "of matmul rate", "pgax is faster by")]
  for name, time in times.items():
    ratio = time.wall / times["pgax"].wall
    rows.append(
      (
        name,
        f"{PROMPTS * GROUP * (PROMPT_TOKENS + NEW_TOKENS) / time.wall:,.0f}",
        f"{time.wall:.3f}",
        f"{time.cpu:.3f}",
        f"{share:.0%}" if name == "pgax" else "",
        "" if name == "pgax" else f"{ratio:.2f} x",
      )
    )
  return rows


if __name__ == "__main__":
  app.run(main)
