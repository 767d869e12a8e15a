"""Checkpoint directories: errors and their messages, dtypes, tokenizers."""

import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from transformers import AutoTokenizer

from pgax.data.tokenizer import byte_tokenizer
from pgax.distributed import make_mesh
from pgax.distributed.partitioning import param_shardings
from pgax.models import Decoder
from pgax.models.hf import check_length, eos_ids, from_hf, load_config, load_params, save
from tests import tiny
from tests.models.hf import families

CASE = families.CASES[1]  # a Llama with tied embeddings
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
Q = "model.layers.1.self_attn.q_proj.weight"


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
  path = tmp_path_factory.mktemp("saved")
  families.write(CASE, path)
  return path


@pytest.fixture
def copy(saved, tmp_path):
  """A copy of the directory that a test may break."""
  return shutil.copytree(saved, tmp_path / "copy")


def load(path, dtype=jnp.float32):
  config = load_config(path)
  return load_params(path, config, param_shardings(Decoder(config), make_mesh()), dtype)


def change(path, edit):
  """Edits the tensors of a directory."""
  tensors = load_file(path / WEIGHTS)
  edit(tensors)
  save_file(tensors, path / WEIGHTS, metadata={"format": "pt"})


@pytest.mark.parametrize(
  ("edit", "message"),
  [
    (lambda t: t.pop(Q), rf"{Q} is missing"),
    (lambda t: t.update({Q: t[Q][:3]}), rf"{Q}.* shape \(3, 32\).* asks for \(32, 32\)"),
    (lambda t: t.update(score=t[Q]), "tensor score .* is unexpected"),
    (
      lambda t: t.update({"lm_head.weight": t["model.embed_tokens.weight"] + 1}),
      "lm_head.weight .* differs",
    ),
    (lambda t: t.update({Q: t[Q].astype(np.int8)}), rf"{Q} .* is I8; supported are F64"),
  ],
)
def test_wrong_tensors_are_named(copy, edit, message):
  change(copy, edit)
  with pytest.raises(ValueError, match=message):
    load(copy)


def test_harmless_tensors_are_accepted(copy, saved):
  change(
    copy,
    lambda t: t.update(
      {
        "lm_head.weight": t["model.embed_tokens.weight"].copy(),
        "model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(4, np.float32),
      }
    ),
  )
  jax.tree.map(np.testing.assert_array_equal, load(copy), load(saved))


def test_broken_files_are_named(copy):
  (copy / WEIGHTS).write_bytes(b"\x08")
  with pytest.raises(ValueError, match=r"model\.safetensors is not a safetensors file"):
    load(copy)
  (copy / WEIGHTS).unlink()
  with pytest.raises(ValueError, match=r"model\.safetensors is missing"):
    load(copy)
  (copy / INDEX).write_text(json.dumps({"weight_map": {Q: "part.safetensors"}}))
  with pytest.raises(ValueError, match=r"part\.safetensors is missing"):
    load(copy)
  save_file({"other": np.ones(1, np.float32)}, copy / "part.safetensors")
  with pytest.raises(ValueError, match=rf"{Q} is not in .*part\.safetensors"):
    load(copy)
  (copy / "config.json").write_text("{")
  with pytest.raises(ValueError, match=r"config\.json is not JSON"):
    load_config(copy)
  (copy / "config.json").unlink()
  with pytest.raises(ValueError, match=r"config\.json can't be read"):
    load_config(copy)


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    (
      {"architectures": ["FooForCausalLM"]},
      "FooForCausalLM is not supported; supported are",
    ),
    ({"hidden_size": None}, "no hidden_size"),
    ({"hidden_act": "gelu"}, "activation gelu is not supported; supported are"),
    ({"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}}, "rope_type dynamic"),
    (
      {"rope_parameters": {"rope_type": "linear"}},
      "Missing required keys .*='linear': {'factor'}",
    ),
    ({"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5"),
    ({"use_bidirectional_attention": True}, "use_bidirectional_attention is true"),
    ({"num_key_value_heads": 3}, "num_kv_heads is 3; it must divide"),
  ],
)
def test_unsupported_settings_are_named(copy, changes, message):
  path = copy / "config.json"
  path.write_text(json.dumps(json.loads(path.read_text()) | changes))
  with pytest.raises(ValueError, match=message):
    load_config(copy)


def family_config(name, **changes):
  """The `config.json` of a family, with changes."""
  (case,) = (case for case in families.CASES if case.name == name)
  settings = families._SIZES | case.settings
  return json.loads(case.config(**settings).to_json_string(use_diff=False)) | changes


@pytest.mark.parametrize(
  ("name", "changes", "message"),
  [
    (
      "qwen3_moe",
      {"mlp_only_layers": [0]},
      r"mlp_only_layers is \[0\]; the only .* is \[\]",
    ),
    ("qwen3_moe", {"decoder_sparse_step": 2}, "decoder_sparse_step is 2; the only"),
    ("qwen3_moe", {"num_experts_per_tok": 9}, "experts_per_token is 9; it must be from 1"),
    ("qwen3_moe", {"norm_topk_prob": 1}, "'norm_topk_prob' expected bool, got int"),
    ("mixtral", {"router_jitter_noise": 0.1}, "router_jitter_noise is 0.1; the only"),
    ("mixtral", {"num_local_experts": 0}, "from 0 to model.num_experts, which is 0"),
    ("olmo2", {"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5; Olmo2"),
    (
      "phi3",
      {"partial_rotary_factor": 0.4, "rope_parameters": None},
      "rope_fraction is 0.4",
    ),
    (
      "phi3",
      {"rope_parameters": {"rope_type": "longrope"}},
      "Missing required keys .*='longrope': .*short_factor",
    ),
    (
      "phi3_longrope",
      {"rope_scaling": {"short_factor": [1.0, "x", 1.0]}},
      "short_factor field must be a list of numbers",
    ),
    (
      "phi3_longrope",
      {"rope_scaling": {"short_factor": [1.0]}},
      "short_factor field must have length 4, got 1",
    ),
    (
      "smollm3",
      {"no_rope_layers": [1, 0]},
      "rope_layers has 2 entries; it must .* 3 layers",
    ),
    ("smollm3", {"no_rope_layers": "10"}, "'no_rope_layers' with value '10' doesn't match"),
    ("granite", {"logits_scaling": 0}, "logit_divisor is 0.0; it must be positive"),
    ("granite", {"hidden_act": "relu"}, "hidden_act is relu: activation relu is not"),
    ("gemma", {"hidden_act": "gelu_new"}, "hidden_act is gelu_new"),
    (
      "gemma3",
      {"attn_logit_softcapping": 50.0},
      "attn_logit_softcapping is 50.0; the only",
    ),
    (
      "ministral",
      {"layer_types": ["chunked_attention"] * 3},
      "layer_types has chunked_att",
    ),
  ],
)
def test_unsupported_settings_of_a_family_are_named(name, changes, message):
  from_hf(family_config(name))
  with pytest.raises(ValueError, match=message):
    from_hf(family_config(name, **changes))


def test_settings_in_other_words():
  older = family_config("gemma", hidden_act="gelu")  # means the approximation
  assert from_hf(older) == from_hf(family_config("gemma"))
  raw = family_config("qwen3_moe")
  experts = raw.pop("num_local_experts", None) or raw.pop("num_experts")
  for key in ("num_experts", "num_local_experts"):
    assert from_hf(raw | {key: experts}).num_experts == 6
  raw = family_config("phi3_longrope")
  scaling = raw.pop("rope_parameters")
  scaling["type"] = {"longrope": "su"}[scaling.pop("rope_type")]
  expected = from_hf(family_config("phi3_longrope"))
  assert from_hf(raw | {"rope_scaling": scaling}) == expected


def test_older_names_of_rope_settings():
  sizes = {
    "vocab_size": 10,
    "hidden_size": 8,
    "intermediate_size": 8,
    "num_hidden_layers": 6,
    "num_attention_heads": 2,
    "max_position_embeddings": 64,
  }
  few = {"num_key_value_heads": 2}  # the families differ in the number that is the default
  llama = {"model_type": "llama", "rope_theta": 5e5}
  scaling = {"type": "linear", "factor": 4.0}
  config = from_hf(sizes | llama | {"rope_scaling": scaling})
  assert config.rope_theta == 5e5 and config.num_kv_heads == 2 and config.head_dim == 4
  assert (config.rope_scaling.kind, config.rope_scaling.factor) == ("linear", 4.0)
  yarn = {"rope_type": "yarn", "factor": 2.0, "mscale": 1.0, "mscale_all_dim": 0.5}
  config = from_hf(sizes | llama | {"rope_scaling": yarn})
  assert config.rope_scaling.trained_length == 64
  expected = (0.1 * np.log(2) + 1) / (0.05 * np.log(2) + 1)
  assert config.rope_scaling.attention_factor == pytest.approx(expected)
  gemma = {"model_type": "gemma3_text", "rope_theta": 1e6, "rope_local_base_freq": 1e4}
  config = from_hf(sizes | few | gemma | {"sliding_window": 4, "sliding_window_pattern": 3})
  assert config.sliding_layers == (True, True, False, True, True, False)
  assert (config.rope_theta, config.local_rope_theta) == (1e6, 1e4)
  assert config.tie_embeddings and config.head_dim == 256
  plain = from_hf(sizes | few | {"model_type": "mistral", "sliding_window": None})
  assert plain.sliding_window == 0


def test_bfloat16_in_and_out(saved, tmp_path):
  params, config = load(saved), load_config(saved)
  save(tmp_path / "half", config, params, None, saved, dtype="bfloat16")
  stored = load_file(tmp_path / "half" / WEIGHTS)
  assert {str(x.dtype) for x in stored.values()} == {"bfloat16"}
  back = CASE.model.from_pretrained(tmp_path / "half")
  assert back.dtype == torch.bfloat16
  rounded = jax.tree.map(lambda x: x.astype(jnp.bfloat16), params)
  for dtype in (jnp.bfloat16, jnp.float32):
    loaded = load(tmp_path / "half", dtype)
    assert {x.dtype for x in jax.tree.leaves(loaded)} == {jnp.dtype(dtype)}
    jax.tree.map(np.testing.assert_array_equal, loaded, rounded)


def test_tokenizer_and_chat_template_are_saved(saved, tmp_path):
  tokenizer = byte_tokenizer()
  tokenizer.chat_template = (
    "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}\n{% endfor %}"
  )
  path = tmp_path / "with_tokenizer"
  save(path, load_config(saved), load(saved), tokenizer)
  back = AutoTokenizer.from_pretrained(path)
  chat = [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "é4"}]
  for tokenize in (True, False):
    expected = tokenizer.apply_chat_template(chat, tokenize=tokenize)
    assert back.apply_chat_template(chat, tokenize=tokenize) == expected
  written = json.loads((path / "config.json").read_text())
  assert written["eos_token_id"] == tokenizer.eos_token_id


def test_bad_exports_raise(saved, tmp_path):
  params, config = load(saved), load_config(saved)
  full = tmp_path / "full"
  full.mkdir()
  (full / "note").touch()
  with pytest.raises(ValueError, match="not an empty directory"):
    save(full, config, params, None)
  with pytest.raises(ValueError, match=r"dtype is 'int8'; it must be one of float32"):
    save(tmp_path / "x", config, params, None, dtype="int8")
  other = families.CASES[0]
  families.write(other, tmp_path / "other")
  with pytest.raises(ValueError, match=r"has another model: .*tie_embeddings.* differ"):
    save(tmp_path / "x", config, params, None, tmp_path / "other")
  untied = load_config(tmp_path / "other")
  with pytest.raises(ValueError, match=r"unembedding of shape \(32, 160\) is missing"):
    save(tmp_path / "x", untied, params, None)
  fresh = tiny.fresh(Decoder(untied))
  with pytest.raises(ValueError, match=r"parameter .* is unexpected"):
    save(tmp_path / "x", config, fresh, None)
  assert not (tmp_path / "x").exists()


BAD_SETTINGS = [
  ("hidden_size", "big", "'hidden_size' expected int, got str"),
  ("hidden_size", -32, "embed_dim is -32; it must be at least 1"),
  ("hidden_size", 32.0, "'hidden_size' expected int, got float"),
  ("hidden_size", None, "config.json has no hidden_size"),
  ("vocab_size", [99], "'vocab_size' expected int, got list"),
  ("vocab_size", True, "'vocab_size' expected int, got bool"),
  ("num_hidden_layers", 0, "num_layers is 0; it must be at least 1"),
  ("num_attention_heads", "4", "'num_attention_heads' expected int, got str"),
  ("num_key_value_heads", {}, "'num_key_value_heads' with value {} doesn't match"),
  ("num_key_value_heads", 0, "num_kv_heads is 0; it must be at least 1"),
  ("head_dim", 1.5, "'head_dim' with value 1.5 doesn't match"),
  ("head_dim", 0, "head_dim is 0; it must be at least 1"),
  ("intermediate_size", None, "config.json has no intermediate_size"),
  ("rms_norm_eps", "tiny", "'rms_norm_eps' expected float, got str"),
  ("rms_norm_eps", -1.0, "norm_eps is -1.0; it must be positive"),
  ("rope_theta", 0, "rope_theta is 0; it must be a positive number"),
  ("rope_theta", float("nan"), "rope_theta is nan"),
  ("rope_scaling", "linear", "'rope_parameters' with value 'linear' doesn't match"),
  ("rope_scaling", {"rope_type": "linear", "factor": "2"}, "factor is '2'; it must be a"),
  ("rope_parameters", [1], r"'rope_parameters' with value \[1\] doesn't match"),
  ("rope_parameters", {"rope_theta": -1}, "rope_theta is -1; it must be a positive"),
  ("tie_word_embeddings", "yes", "'tie_word_embeddings' expected bool, got str"),
  ("attention_bias", 1, "'attention_bias' expected bool, got int"),
  ("hidden_act", 3, "'hidden_act' expected str, got int"),
  ("architectures", "LlamaForCausalLM", "must be a list of strings"),
  ("architectures", [3], "must be a list of strings"),
  ("model_type", "mamba", "model_type is mamba; that of LlamaForCausalLM is llama"),
  ("quantization_config", {"bits": 4}, "quantized weights are not supported"),
  ("max_position_embeddings", "long", "'max_position_embeddings' expected int, got str"),
]


@pytest.mark.parametrize(("name", "value", "message"), BAD_SETTINGS)
def test_bad_settings_of_a_config_file_are_named(copy, name, value, message):
  raw = json.loads((copy / "config.json").read_text())
  if name == "rope_theta":  # the older name, which is ignored beside the newer one
    raw.pop("rope_parameters")
  (copy / "config.json").write_text(json.dumps(raw | {name: value}))
  with pytest.raises(ValueError, match=message) as error:
    load_config(copy)
  assert str(copy / "config.json") in str(error.value)


def test_an_architecture_without_attention_is_not_supported(copy):
  (copy / "config.json").write_text('{"model_type": "mamba"}')
  with pytest.raises(ValueError, match="architecture mamba is not supported; supported"):
    load_config(copy)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_that_are_not_finite_are_named(copy, value):
  change(copy, lambda tensors: tensors[Q].fill(value))
  with pytest.raises(ValueError, match=rf"tensor {Q} of .*{WEIGHTS} has values that"):
    load(copy)


def test_longer_texts_than_a_model_was_made_for_are_rejected(copy):
  raw = {"max_position_embeddings": 100}
  (copy / "config.json").write_text(json.dumps(raw))
  check_length(copy, 100)
  with pytest.raises(ValueError, match="is 101; the model's max_position_embeddings al"):
    check_length(copy, 101)
  raw["rope_scaling"] = {"rope_type": "linear", "factor": 2.0}
  (copy / "config.json").write_text(json.dumps(raw))
  check_length(copy, 200)
  with pytest.raises(ValueError, match="is 201; .* allows 200"):
    check_length(copy, 201)


def test_longrope_is_for_texts_as_long_as_in_training(copy):
  raw = family_config("phi3_longrope")
  (copy / "config.json").write_text(json.dumps(raw))
  check_length(copy, 64)
  with pytest.raises(ValueError, match="is 65; .* original_max_position_embeddings all"):
    check_length(copy, 65)


@pytest.mark.parametrize("ids", ["2", [1, "2"], -1, [[1]], 1.0])
def test_ids_that_end_a_text_must_be_ids(copy, ids):
  (copy / "generation_config.json").write_text(json.dumps({"eos_token_id": ids}))
  with pytest.raises(ValueError, match="eos_token_id in .*generation_config.json is"):
    eos_ids(copy)


@pytest.mark.parametrize("index", [[], "x", {"a": 3}])
def test_an_index_that_is_no_mapping_is_named(copy, index):
  (copy / INDEX).write_text(json.dumps({"weight_map": index}))
  with pytest.raises(ValueError, match=f"{INDEX} must have an object weight_map"):
    load(copy)
