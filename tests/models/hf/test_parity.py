"""Every family agrees with transformers: logits, cache, greedy decoding, export."""

import dataclasses
import json
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from pgax.distributed import make_mesh
from pgax.distributed.partitioning import param_shardings
from pgax.models import Decoder
from pgax.models.cache import NEVER, Cache, empty_key_values, token_positions
from pgax.models.hf import from_hf, load_config, load_params, save, to_hf
from pgax.models.hf.files import read_json
from pgax.sampling import Options, sample
from tests import tiny
from tests.models.hf import families

LENGTHS, WIDTH, PREFILL = np.array([19, 13, 9]), 19, 7
MASK = np.arange(WIDTH) < LENGTHS[:, None]
DRAWN = np.random.default_rng(0).integers(3, families.VOCAB, MASK.shape)
TOKENS = np.where(MASK, DRAWN, 0).astype(np.int32)
NEW = 10


class Loaded(NamedTuple):
  """The same model in transformers and here."""

  path: str
  torch_model: torch.nn.Module
  model: Decoder
  params: dict
  logits: np.ndarray  # logits of TOKENS, by transformers


def torch_logits(model, tokens=TOKENS, mask=MASK):
  with torch.no_grad():
    arguments = [torch.tensor(x).long() for x in (tokens, mask)]
    return model(arguments[0], attention_mask=arguments[1]).logits.numpy()


# Their code that decodes is that of the other families.
_SLOW_TO_DECODE = ("ministral", "gemma", "phi3", "olmo2", "granite", "mixtral")
DECODED = [
  pytest.param(
    case, marks=[pytest.mark.slow] if case.name in _SLOW_TO_DECODE else [], id=case.name
  )
  for case in families.CASES
]


@pytest.fixture(scope="module", params=families.CASES, ids=lambda case: case.name)
def loaded(request, tmp_path_factory):
  path = tmp_path_factory.mktemp(request.param.name)
  torch_model = families.write(request.param, path)
  model = Decoder(load_config(path))
  params = load_params(path, model.config, param_shardings(model, make_mesh()))
  return Loaded(path, torch_model, model, params, torch_logits(torch_model))


def at_once_and_by_token(model: Decoder):
  """Logits of all tokens read at once, and of a prefill followed by single tokens."""

  def logits(params, tokens, positions):
    at_once, _ = model.apply(params, tokens, positions)
    c = model.config
    shape = (c.num_layers, *tokens.shape[:2], c.num_kv_heads, WIDTH + 1, c.head_dim)
    cache = Cache(None, empty_key_values(shape, c.dtype), jnp.int32(0))
    prefill, cache = model.apply(
      params, tokens[..., :PREFILL], positions[..., :PREFILL], cache
    )

    def read(cache, at):
      one = [jax.lax.dynamic_slice_in_dim(x, at, 1, axis=2) for x in (tokens, positions)]
      logits, cache = model.apply(params, *one, cache)
      return cache, logits[:, :, 0]

    _, decoded = jax.lax.scan(read, cache, jnp.arange(PREFILL, WIDTH))
    return at_once, jnp.concatenate([prefill, jnp.moveaxis(decoded, 0, 2)], axis=2)

  return jax.jit(logits)


def test_logits(loaded):
  positions = token_positions(MASK)
  assert np.any(positions == NEVER) and loaded.logits.std() > 0.3
  both = at_once_and_by_token(loaded.model)(
    loaded.params, TOKENS[:, None], positions[:, None]
  )
  for logits in both:
    assert logits.dtype == jnp.float32
    np.testing.assert_allclose(logits[:, 0][MASK], loaded.logits[MASK], atol=1e-4)


@pytest.mark.parametrize("loaded", DECODED, indirect=True)
def test_greedy_decoding(loaded):
  rolled = [np.roll(x, WIDTH - n) for x, n in zip(TOKENS, LENGTHS, strict=True)]
  mask = torch.tensor(MASK[:, ::-1].copy()).long()  # generate pads on the left
  config = loaded.torch_model.generation_config
  config.eos_token_id = None
  expected = loaded.torch_model.generate(
    torch.tensor(np.array(rolled)).long(),
    attention_mask=mask,
    max_new_tokens=NEW,
    do_sample=False,
  )
  rollout = sample(
    loaded.model,
    loaded.params,
    TOKENS,
    MASK,
    jax.random.key(0),
    Options(np.array([-1]), temperature=0.0),
    group=1,
    max_tokens=NEW,
  )
  np.testing.assert_array_equal(rollout.tokens[:, 0], expected[:, WIDTH:].numpy())
  assert len(np.unique(rollout.tokens)) > 5


@pytest.mark.parametrize("with_source", [True, False])
def test_export_is_the_same_model(loaded, tmp_path, with_source):
  source = loaded.path if with_source else None
  path = tmp_path / "exported"
  save(path, loaded.model.config, loaded.params, None, source, max_file_bytes=20_000)
  assert len(list(path.glob("model-*-of-*.safetensors"))) > 2
  back = AutoModelForCausalLM.from_pretrained(path, attn_implementation="eager")
  if with_source:
    assert back.state_dict().keys() == loaded.torch_model.state_dict().keys()
  np.testing.assert_array_equal(torch_logits(back.eval()), loaded.logits)
  assert dataclasses.asdict(load_config(path)) == dataclasses.asdict(loaded.model.config)
  assert (path / "generation_config.json").is_file() == with_source


def test_config_survives_a_round_trip(loaded):
  raw = read_json(loaded.path / "config.json")
  written = to_hf(from_hf(raw))
  assert from_hf(written) == loaded.model.config
  if raw["model_type"] != "mistral":
    assert written["architectures"] == raw["architectures"]


def test_the_layer_types_of_a_mistral_are_read(tmp_path):
  (case,) = (case for case in families.CASES if case.name == "ministral")
  case.make().save_pretrained(tmp_path)
  raw = read_json(tmp_path / "config.json")
  raw |= {"architectures": ["MistralForCausalLM"], "model_type": "mistral"}
  (tmp_path / "config.json").write_text(json.dumps(raw))
  # As `AutoModel` does, and unlike `MistralForCausalLM`.
  expected = AutoModelForCausalLM.from_pretrained(tmp_path, attn_implementation="eager")
  model = Decoder(load_config(tmp_path))
  assert model.config.sliding_layers == (True, False, True)
  params = load_params(tmp_path, model.config, param_shardings(model, make_mesh()))
  positions = token_positions(MASK)[:, None]
  logits, _ = jax.jit(model.apply)(params, TOKENS[:, None], positions)
  np.testing.assert_allclose(logits[:, 0][MASK], torch_logits(expected)[MASK], atol=1e-4)


def test_a_decoder_that_no_architecture_can_express_raises():
  with pytest.raises(ValueError, match=r"closest is .* but scale_embeddings is True"):
    to_hf(tiny.CONFIG)
