"""Sequence scorers of every family, as transformers computes them, and back."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers
from safetensors.numpy import load_file, save_file

from pgax.distributed.mesh import make_mesh
from pgax.models import ScalarDecoder, sequence_scores
from pgax.models.heads import headless, with_decoder
from pgax.models.hf import (
  check_reward_model,
  load_reward_model,
  load_reward_model_config,
  save_reward_model,
)
from pgax.models.parameters import init_params, param_shardings
from tests import tiny
from tests.models.hf import families

PREFILL = 4  # the prompt; the rest is the completion
LENGTHS = np.array([11, 8, 5])
MASK = np.arange(11) < LENGTHS[:, None]
DRAWN = np.random.default_rng(0).integers(3, families.VOCAB, MASK.shape)
TOKENS = np.where(MASK, DRAWN, 0).astype(np.int32)
NAMES = ("llama", "qwen2_yarn_sliding", "qwen3", "gemma3")
MORE = [pytest.param(name, marks=pytest.mark.slow) for name in ("mistral", "gemma2")]
WEIGHTS = "model.safetensors"


def torch_scorer(name, labels=1):
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
    prompts, rest = np.split(MASK, [PREFILL], axis=1)
    tokens = jnp.split(jnp.asarray(tokens), [PREFILL], axis=1)
    return sequence_scores(
      ScalarDecoder(config), params, tokens[0], prompts, tokens[1][:, None], rest[:, None]
    )[:, 0]

  return apply(params, tokens)


def load(path):
  config = load_reward_model_config(path)
  return config, load_reward_model(
    path, config, param_shardings(ScalarDecoder(config), make_mesh())
  )


@pytest.mark.parametrize("name", [*NAMES, *MORE])
def test_scores_and_export(tmp_path, name):
  theirs = torch_scorer(name)
  theirs.save_pretrained(tmp_path / "model")
  expected = torch_scores(theirs)
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
  torch_scorer("qwen3").save_pretrained(path)
  return path


def test_what_comes_after_the_last_token_plays_no_part(saved):
  config, params = load(saved)
  found = scores(config, params)
  other = np.where(MASK, TOKENS, 7)
  np.testing.assert_array_equal(scores(config, params, other), found)
  last = TOKENS.copy()
  last[np.arange(3), LENGTHS - 1] += 1
  assert np.abs(scores(config, params, last) - found).min() > 1e-3


@pytest.mark.parametrize(
  ("edit", "told"),
  [
    (lambda t: t.pop("score.weight"), "tensor score.weight is missing"),
    (lambda t: t.pop("model.norm.weight"), "tensor model.norm.weight is missing"),
    (
      lambda t: t.update({"score.weight": np.zeros((2, 32), np.float32)}),
      "score.weight in .* has 2 labels; a sequence scorer has one",
    ),
    (
      lambda t: t.update({"score.weight": np.zeros((1, 31), np.float32)}),
      r"score.weight .* shape \(1, 31\)",
    ),
    (lambda t: t.update({"v_head": np.zeros(2)}), "tensor v_head .* is surplus"),
  ],
)
def test_wrong_tensors_are_named(saved, tmp_path, edit, told):
  (tmp_path / "config.json").write_text((saved / "config.json").read_text())
  found = load_file(saved / WEIGHTS)
  edit(found)
  save_file(found, tmp_path / WEIGHTS, metadata={"format": "pt"})
  with pytest.raises(ValueError, match=told):
    check_reward_model(tmp_path, load_reward_model_config(tmp_path))


def test_another_architecture_is_named(tmp_path):
  (tmp_path / "config.json").write_text(json.dumps({"architectures": ["BertForMaskedLM"]}))
  with pytest.raises(ValueError, match="BertForMaskedLM is no known scorer; known are Lla"):
    load_reward_model_config(tmp_path)


def test_a_head_on_a_policy(tmp_path):
  untied = dataclasses.replace(tiny.CONFIG, scale_embeddings=False, tie_embeddings=False)
  policy = init_params(tiny.Decoder(untied), jax.random.key(1))
  scorer = ScalarDecoder(headless(untied))
  params = with_decoder(init_params(scorer, jax.random.key(0)), policy)
  assert "unembedding" not in params["params"]["decoder"]
  save_reward_model(tmp_path / "new", untied, params, None)
  config, back = load(tmp_path / "new")
  assert config == headless(untied)
  for ours, theirs in zip(jax.tree.leaves(back), jax.tree.leaves(params), strict=True):
    np.testing.assert_array_equal(ours, theirs)
  biased = {"params": dict(params["params"]) | {"bias": jnp.float32(0.5)}}
  with pytest.raises(ValueError, match="bias is 0.5; transformers has none"):
    save_reward_model(tmp_path / "other", untied, biased, None)
