"""A run from a checkpoint directory of transformers, and the directory it exports."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers

from experiments.configs import gsm8k_r1_zero
from pgax import algorithms
from pgax.data import byte_tokenizer
from pgax.data.tokenizer import load_tokenizer
from pgax.models import Decoder, hf, lora
from pgax.runs.json_lines import read_lines
from pgax.tasks import addition
from pgax.training import (
  EvaluationConfig,
  RunConfig,
  SamplingConfig,
  UserError,
  build,
  entry,
  to_json,
  train,
  with_settings,
)
from pgax.training.policy import export_policy, load_policy
from pgax.training.preflight import check_run
from pgax.training.saved import from_json
from tests.models.hf.families import CASES
from tests.tiny import any_reward

FAMILIES = {case.name: case for case in CASES}
# One family in the test command, and of the others, which take as long each, those that
# differ most in what is saved. Loading, logits and saving of all are in tests/models/hf.
OTHERS = ("llama", "gemma2", "gemma3", "phi3", "olmo2", "qwen3_moe", "mixtral")
RUNS = [("qwen3", 0)]
RUNS += [pytest.param(name, 0, marks=pytest.mark.slow) for name in OTHERS]
RUNS.append(pytest.param("qwen3", 4, marks=pytest.mark.slow))


def directory(path, name="qwen3"):
  """A checkpoint directory with a tokenizer, as transformers saves it."""
  case = FAMILIES[name]
  case = dataclasses.replace(case, settings=case.settings | {"vocab_size": 264})
  case.make().save_pretrained(path)
  byte_tokenizer().save_pretrained(path)
  return path


def config(path):
  """Two steps of GRPO on one-digit sums, from a directory."""
  return RunConfig(
    name="hf",
    task=entry(addition, digits=1),
    reward=any_reward,
    algorithm=entry(algorithms.grpo),
    model_path=str(path),
    steps=2,
    sampling=SamplingConfig(
      prompts_per_step=4, group_size=4, max_prompt_tokens=5, max_completion_tokens=8
    ),
    evaluation=EvaluationConfig(problems=4),
  )


@pytest.mark.parametrize(("name", "rank"), RUNS)
def test_trained_and_exported(tmp_path, name, rank):
  given = with_settings(config(directory(tmp_path / "model", name)), {"lora.rank": rank})
  run, workdir = build(given), tmp_path / "run"
  tokenizer = load_tokenizer(tmp_path / "model")
  result = train(run, tokenizer, workdir, to_json(given), progress=False)
  assert result.finished
  rows = read_lines(workdir / "metrics.jsonl")[1:]
  assert [row["step"] for row in rows] == [1, 2]
  assert all(row["ratio/sampler_error"] < 1e-4 for row in rows)
  assert any(row["grad_norm"] > 0 for row in rows)

  for _ in range(2):  # the second replaces the first
    trained = lora.merged(run.lora, result.state.base, result.state.params)
    export_policy(run.model, trained, tokenizer, tmp_path / "model", workdir / "export")
  theirs = transformers.AutoModelForCausalLM.from_pretrained(
    workdir / "export", attn_implementation="eager"
  )
  tokens = np.random.default_rng(0).integers(3, 259, (2, 7))
  with torch.no_grad():
    expected = theirs(torch.tensor(tokens)).logits.numpy()
  params = load_policy(build(from_json(to_json(given))), workdir).params
  positions = jnp.broadcast_to(jnp.arange(7), (2, 1, 7))
  ours, _ = Decoder(run.model).apply(params, jnp.asarray(tokens)[:, None], positions)
  np.testing.assert_allclose(ours[:, 0], expected, rtol=1e-4, atol=1e-4)
  start = hf.load_params(tmp_path / "model", run.model, _anywhere(params))
  moved = jax.tree.map(lambda a, b: float(jnp.abs(a - b).max()), params, start)
  assert max(jax.tree.leaves(moved)) > 0
  assert (moved["params"]["embedding"] == 0) == (rank > 0)  # it has no adapter
  assert load_tokenizer(workdir / "export").encode("1+1=") == tokenizer.encode("1+1=")


def test_r1_zero_has_the_values_of_cs336():
  run = build(gsm8k_r1_zero.get_config())
  s, o = run.sampling, run.optimizer
  assert (run.steps, run.evaluation.every) == (200, 10)
  assert (s.completions_per_step, s.group_size) == (256, 8)
  assert (o.learning_rate, o.b1, o.b2, o.weight_decay) == (1e-5, 0.9, 0.95, 0.0)
  assert (o.clip_norm, o.warmup_steps, o.decay_steps) == (1.0, 0, 0)
  assert (s.temperature, s.max_completion_tokens) == (1.0, 1024)
  assert (run.evaluation.temperature, run.evaluation.problems) == (1.0, 1319)
  assert (run.algorithm.epochs, run.algorithm.minibatches) == (1, 1)
  assert run.learner.microbatches == s.prompts_per_step and run.supervised.steps == 0
  prompt = run.task.train[0].prompt
  assert prompt.startswith("A conversation between User and Assistant. The User asks a")
  assert "\nUser: Natalia sold clips" in prompt and prompt.endswith("\nAssistant: <think>")


@pytest.mark.slow
def test_r1_zero_runs_from_a_directory(tmp_path):
  given = gsm8k_r1_zero.get_config()
  path = directory(tmp_path / "model", "qwen2_tied") / "config.json"
  raw = json.loads(path.read_text())
  path.write_text(json.dumps(raw | {"max_position_embeddings": 2048}))  # bytes are many
  changes = {"model_path": str(path.parent), "learner.microbatches": 2}
  changes |= {"sampling.prompts_per_step": 2, "sampling.group_size": 2}
  changes |= {"sampling.max_prompt_tokens": 1400, "sampling.max_completion_tokens": 24}
  changes |= {"steps": 1, "evaluation.problems": 2}
  given = with_settings(given, changes)
  tokenizer = load_tokenizer(tmp_path / "model")
  result = train(given, tokenizer, tmp_path / "run", {}, progress=False)
  assert result.finished
  row = read_lines(tmp_path / "run" / "metrics.jsonl")[1]
  assert row["reward/format_reward"] == row["eval/accuracy"] == 0.0
  assert row["reward/unscorable"] == 0.0


def _anywhere(params):
  return jax.tree.map(lambda x: x.sharding, params)


def test_the_directory_decides_the_shape(tmp_path):
  given = config(directory(tmp_path / "model"))
  loaded = hf.load_config(tmp_path / "model")
  assert build(given).model == dataclasses.replace(loaded, dtype="auto")
  assert build(build(given)).model == build(given).model
  given = with_settings(given, {"model.dtype": "bfloat16"})
  assert build(given).model.dtype == "bfloat16"
  given = with_settings(given, {"model.embed_dim": 48})
  with pytest.raises(UserError, match="config.model.embed_dim is 48 and config.model.path"):
    build(given)


def test_texts_longer_than_the_model_takes_are_refused(tmp_path):
  given = config(directory(tmp_path / "model"))
  given = with_settings(given, {"sampling.max_completion_tokens": 10_000})
  run, tokenizer = build(given), load_tokenizer(tmp_path / "model")
  with pytest.raises(UserError, match="the model's max_position_embeddings al"):
    check_run(run, tokenizer)


def test_eos_of_the_model_ends_completions(tmp_path):
  path = directory(tmp_path / "model")
  (path / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 7]}))
  assert hf.eos_ids(path) == (2, 7)
  (path / "generation_config.json").unlink()
  assert hf.eos_ids(path) == (2,)


def test_what_does_not_fit_is_said_before_the_start(tmp_path):
  given = config(tmp_path / "nowhere")
  with pytest.raises(UserError, match="nowhere.*config.json can't be read"):
    build(given)
  path = directory(tmp_path / "model")
  with pytest.raises(ValueError, match="a run can start from one of them only"):
    dataclasses.replace(config(path), init_from_run="other")
  (path / "model.safetensors").unlink()
  with pytest.raises(UserError, match="model"):
    train(config(path), byte_tokenizer(), tmp_path / "run", {}, progress=False)
  assert not (tmp_path / "run").exists()
