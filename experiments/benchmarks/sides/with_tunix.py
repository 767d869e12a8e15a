"""Tunix: its vanilla `Sampler` and its GRPO update, on weights of its own.

The model is its Qwen3, which normalizes queries and keys; other sizes are those of pgax. An
update is the pass of the reference and the trainer's step. Sampler and trainer have a copy
of the weights each, because the trainer donates its own. It needs `pip install
google-tunix`; this program does not import pgax.
"""

import importlib
import importlib.metadata
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from experiments.benchmarks.shape import Shape
from experiments.benchmarks.worker import Call, Work, serve

_WARM_UP = 3  # the second step compiles, too


class Numbers:
  """A tokenizer of texts such as `12 7 301`: the sampler takes nothing but texts."""

  def __init__(self, vocab: int):
    self._vocab = vocab

  def encode(self, text: str, **_: Any) -> list[int]:
    return [int(word) for word in text.split()]

  def decode(self, ids: Any, **_: Any) -> str:
    return " ".join(str(int(number)) for number in ids)

  def bos_id(self) -> int:
    return 0  # no BOS is added

  def eos_id(self) -> int:
    return self._vocab + 7  # never sampled

  def pad_id(self) -> int:
    return 0


def make_model(shape: Shape, seed: int) -> Any:
  """Builds a Qwen3 whose matrices are drawn again: some of its own start at zero."""
  qwen3 = importlib.import_module("tunix.models.qwen3.model")
  remat = qwen3.RematConfig.BLOCK if shape.remat else qwen3.RematConfig.NONE
  config = qwen3.ModelConfig(
    num_layers=shape.layers,
    vocab_size=shape.vocab,
    embed_dim=shape.embed,
    hidden_dim=shape.hidden,
    num_heads=shape.heads,
    head_dim=shape.head_dim,
    num_kv_heads=shape.kv_heads,
    rope_theta=10_000,
    norm_eps=1e-6,
    use_tied_embedding=True,
    remat_config=remat,
  )
  model = qwen3.Qwen3(config, rngs=nnx.Rngs(seed))
  leaves, structure = jax.tree.flatten(nnx.state(model, nnx.Param))
  keys = jax.random.split(jax.random.key(seed), len(leaves))
  drawn = [
    0.02 * jax.random.normal(key, x.shape, x.dtype) if x.ndim > 1 else x
    for key, x in zip(keys, leaves, strict=True)
  ]
  nnx.update(model, jax.tree.unflatten(structure, drawn))
  return model


def build(shape: Shape, names: tuple[str, ...], folder: Path) -> Work:
  """Builds `generate` and `update`.

  Args:
    shape: sizes of model and batch.
    names: names of the calls to build.
    folder: folder with the batch.

  Returns:
    The `Work`.
  """
  batch = dict(np.load(folder / "batch.npz"))
  makers = {"generate": _make_generate, "update": _make_update}
  calls = {name: make(shape, batch) for name, make in makers.items() if name in names}
  leaves = jax.tree.leaves(nnx.state(make_model(shape, 0), nnx.Param))
  version = importlib.metadata.version("google-tunix")
  facts = {
    "params": sum(x.size for x in leaves),
    "versions": {"tunix": version, "jax": jax.__version__},
  }
  return Work(calls, facts, warm_up=_WARM_UP)


def _make_generate(shape: Shape, batch: dict[str, np.ndarray]) -> Call:
  """Makes a function that samples completions of full length."""
  sampler = importlib.import_module("tunix.generate.sampler")
  cache = sampler.CacheConfig(
    cache_size=shape.prompt_len + shape.gen_len,
    num_layers=shape.layers,
    num_kv_heads=shape.kv_heads,
    head_dim=shape.head_dim,
  )
  draw = sampler.Sampler(make_model(shape, 0), Numbers(shape.vocab), cache)
  texts = [" ".join(map(str, row)) for row in batch["prompts"] for _ in range(shape.group)]

  def generate() -> None:
    output = draw(
      texts,
      max_generation_steps=shape.gen_len,
      max_prompt_length=shape.prompt_len,
      temperature=1.0,
      top_p=1.0,
      top_k=None,
      seed=0,
    )
    lengths = {len(tokens) for tokens in output.tokens}
    if lengths != {shape.gen_len}:
      raise RuntimeError(f"completions have {lengths} tokens, not {shape.gen_len}")

  return generate


def _make_cluster(shape: Shape) -> Any:
  """Builds actor and reference on a mesh of one device."""
  lib = importlib.import_module("tunix.rl.rl_cluster")
  rollout = importlib.import_module("tunix.rl.rollout.base_rollout")
  mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]).reshape(1, 1), ("fsdp", "tp"))
  adamw = optax.adamw(shape.lr, b1=0.9, b2=0.95, weight_decay=0.0)
  parts = {}
  if shape.micro > 1:
    parts = {
      "mini_batch_size": shape.prompts,
      "train_micro_batch_size": shape.prompts // shape.micro,
    }
  training = lib.RLTrainingConfig(
    actor_optimizer=optax.chain(optax.clip_by_global_norm(1.0), adamw),
    eval_every_n_steps=10**9,
    max_steps=10**9,
    **parts,
  )
  roles = (lib.Role.ACTOR, lib.Role.REFERENCE, lib.Role.ROLLOUT)
  config = lib.ClusterConfig(
    role_to_mesh=dict.fromkeys(roles, mesh),
    rollout_engine="vanilla",
    offload_to_cpu=False,
    training_config=training,
    rollout_config=rollout.RolloutConfig(
      max_tokens_to_generate=shape.gen_len,
      max_prompt_length=shape.prompt_len,
      kv_cache_size=shape.prompt_len + shape.gen_len,
    ),
  )
  return lib.RLCluster(
    actor=make_model(shape, 0),
    reference=make_model(shape, 0),
    tokenizer=Numbers(shape.vocab),
    cluster_config=config,
  )


def _make_update(shape: Shape, batch: dict[str, np.ndarray]) -> Call:
  """Makes a function that updates the actor."""
  grpo = importlib.import_module("tunix.rl.grpo.grpo_learner")
  cluster, tokenizer = _make_cluster(shape), Numbers(shape.vocab)
  config = grpo.GRPOConfig(
    num_generations=shape.group,
    num_iterations=1,
    beta=shape.beta,
    loss_agg_mode="sequence-mean-token-mean",
  )
  grpo.GRPOLearner(cluster, config, lambda prompts, completions, **_: [0.0] * len(prompts))
  scores = batch["rewards"]
  centered = scores - scores.mean(-1, keepdims=True)
  advantages = jnp.asarray((centered / (scores.std(-1, keepdims=True) + 1e-6)).ravel())
  prompts = jnp.asarray(np.repeat(batch["prompts"], shape.group, axis=0), jnp.int32)
  completions = batch["completions"].reshape(shape.rows, -1)
  completions = jnp.asarray(completions, jnp.int32)
  size = shape.rows // shape.micro

  def update() -> None:
    reference = None
    if shape.beta:
      reference = cluster.get_ref_per_token_logps(
        prompts, completions, tokenizer.pad_id(), tokenizer.eos_id()
      )
    example = grpo.TrainExample(
      prompt_ids=prompts,
      prompt_mask=jnp.ones_like(prompts, bool),
      completion_ids=completions,
      completion_mask=jnp.ones_like(completions, bool),
      ref_per_token_logps=reference,
      advantages=advantages,
      old_per_token_logps=None,
    )
    parts = [
      jax.tree.map(lambda x, start=start: x[start : start + size], example)
      for start in range(0, shape.rows, size)
    ]
    cluster.update_actor(parts, None, False)
    jax.block_until_ready(nnx.state(cluster.actor_trainer.model, nnx.Param))

  return update


if __name__ == "__main__":
  serve(build)
