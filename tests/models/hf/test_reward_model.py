"""Reward models of every family agree with transformers, and survive a round trip."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers
from safetensors.numpy import load_file, save_file

from pgax.distributed import make_mesh
from pgax.distributed.partitioning import param_shardings
from pgax.models import ScalarDecoder, sequence_scores
from pgax.models.heads import headless, with_decoder
from pgax.models.hf import (
  check_reward_model,
  load_config,
  load_reward_model,
  load_reward_model_config,
  save_reward_model,
)
from tests import tiny
from tests.models.hf import families

PROMPT = 4  # length of the prompt; the other tokens are the completion
LENGTHS = np.array([11, 8, 5])
MASK = np.arange(11) < LENGTHS[:, None]
DRAWN = np.random.default_rng(0).integers(3, families.VOCAB, MASK.shape)
TOKENS = np.where(MASK, DRAWN, 0).astype(np.int32)
NAMES = ("llama", "qwen2_yarn_sliding", "qwen3", "gemma3")
MORE = [
  pytest.param(name, marks=pytest.mark.slow)
  for name in (
    "mistral",
    "gemma2",
    "ministral",
    "gemma",
    "phi3",
    "smollm3",
    "olmo2",
    "qwen3_moe",
    "mixtral",
  )
]
WEIGHTS = "model.safetensors"


def torch_reward_model(name, labels=1):
  (case,) = (case for case in families.CASES if case.name == name)
  family = case.config.__name__.removesuffix("Config")
  model = getattr(transformers, f"{family}ForSequenceClassification")
  settings = case.settings | {"num_labels": labels}
  return dataclasses.replace(case, model=model, settings=settings).make()


def torch_scores(model, tokens=TOKENS):
  with torch.no_grad():
    mask = torch.tensor(MASK).long()
    return model(torch.tensor(tokens).long(), attention_mask=mask).logits[:, 0].numpy()


def scores(config, params, tokens=TOKENS):
  @jax.jit
  def apply(params, tokens):
    prompt_mask, token_mask = np.split(MASK, [PROMPT], axis=1)
    prompts, completions = jnp.split(jnp.asarray(tokens), [PROMPT], axis=1)
    model, groups = ScalarDecoder(config), (completions[:, None], token_mask[:, None])
    return sequence_scores(model, params, prompts, prompt_mask, *groups)[:, 0]

  return apply(params, tokens)


def load(path):
  config = load_reward_model_config(path)
  return config, load_reward_model(
    path, config, param_shardings(ScalarDecoder(config), make_mesh())
  )


@pytest.mark.parametrize("name", [*NAMES, *MORE])
def test_scores_and_export(tmp_path, name):
  torch_model = torch_reward_model(name)
  torch_model.save_pretrained(tmp_path / "model")
  expected = torch_scores(torch_model)
  assert np.abs(expected).min() > 1e-2
  config, params = load(tmp_path / "model")
  np.testing.assert_allclose(scores(config, params), expected, atol=1e-4)
  for source in (tmp_path / "model", None):
    exported = tmp_path / f"exported{source is None}"
    save_reward_model(exported, config, params, None, source, max_file_bytes=20_000)
    back = transformers.AutoModelForSequenceClassification.from_pretrained(
      exported, attn_implementation="eager", pad_token_id=0
    )
    np.testing.assert_array_equal(torch_scores(back.eval()), expected)
    assert load_reward_model_config(exported) == config


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
  path = tmp_path_factory.mktemp("saved")
  torch_reward_model("qwen3").save_pretrained(path)
  return path


def test_tokens_after_the_last_one_are_ignored(saved):
  config, params = load(saved)
  plain = scores(config, params)
  other_padding = np.where(MASK, TOKENS, 7)
  np.testing.assert_array_equal(scores(config, params, other_padding), plain)
  last = TOKENS.copy()
  last[np.arange(3), LENGTHS - 1] += 1
  assert np.abs(scores(config, params, last) - plain).min() > 1e-3


@pytest.mark.parametrize(
  ("edit", "message"),
  [
    (lambda t: t.pop("score.weight"), "tensor score.weight is missing"),
    (lambda t: t.pop("model.norm.weight"), "tensor model.norm.weight is missing"),
    (
      lambda t: t.update({"score.weight": np.zeros((2, 32), np.float32)}),
      "score.weight in .* has 2 labels; a reward model has one",
    ),
    (
      lambda t: t.update({"score.weight": np.zeros((1, 31), np.float32)}),
      r"score.weight .* shape \(1, 31\)",
    ),
    (lambda t: t.update({"v_head": np.zeros(2)}), "tensor v_head .* is unexpected"),
  ],
)
def test_wrong_tensors_are_named(saved, tmp_path, edit, message):
  (tmp_path / "config.json").write_text((saved / "config.json").read_text())
  tensors = load_file(saved / WEIGHTS)
  edit(tensors)
  save_file(tensors, tmp_path / WEIGHTS, metadata={"format": "pt"})
  with pytest.raises(ValueError, match=message):
    check_reward_model(tmp_path, load_reward_model_config(tmp_path))


def test_another_architecture_is_named(tmp_path):
  (tmp_path / "config.json").write_text(json.dumps({"architectures": ["BertForMaskedLM"]}))
  with pytest.raises(ValueError, match="BertForMaskedLM is not a supported reward"):
    load_reward_model_config(tmp_path)


def test_an_architecture_without_a_reward_model_is_named(tmp_path):
  (case,) = (case for case in families.CASES if case.name == "granite")
  case.make().save_pretrained(tmp_path / "granite")
  config = load_config(tmp_path / "granite")
  params = tiny.fresh(ScalarDecoder(headless(config)))
  with pytest.raises(ValueError, match="no reward model on GraniteForCausalLM"):
    save_reward_model(tmp_path / "new", config, params, None, tmp_path / "granite")


def test_a_policy_becomes_a_reward_model(tmp_path):
  untied = dataclasses.replace(tiny.CONFIG, scale_embeddings=False, tie_embeddings=False)
  policy = tiny.fresh(tiny.Decoder(untied), 1)
  model = ScalarDecoder(headless(untied))
  params = with_decoder(tiny.fresh(model), policy)
  assert "unembedding" not in params["params"]["decoder"]
  save_reward_model(tmp_path / "new", untied, params, None)
  config, back = load(tmp_path / "new")
  assert config == headless(untied)
  jax.tree.map(np.testing.assert_array_equal, back, params)
  biased = {"params": dict(params["params"]) | {"bias": jnp.float32(0.5)}}
  with pytest.raises(ValueError, match="bias of the head is 0.5; transformers"):
    save_reward_model(tmp_path / "other", untied, biased, None)
