"""A real model: greedy completions of chats equal those of transformers.

`PGAX_SMOLLM2` is the directory that `python -m experiments.prepare_smollm2` wrote; without
it these tests are skipped.
"""

import importlib.util
import os
from pathlib import Path

import jax
import numpy as np
import pytest
import torch
import transformers

from pgax.data import CollatePrompts
from pgax.data.chat import Chat
from pgax.data.tokenizer import load_tokenizer
from pgax.distributed.mesh import make_mesh
from pgax.distributed.partitioning import param_shardings
from pgax.models import Decoder, hf
from pgax.rollout.config import SamplingConfig
from pgax.rollout.sampler import make_sampler
from pgax.types import Example

DIRECTORY = os.environ.get("PGAX_SMOLLM2", "")
pytestmark = [
  pytest.mark.slow,
  pytest.mark.skipif(not DIRECTORY, reason="PGAX_SMOLLM2 is not set"),
]
QUESTIONS = (
  "What is the capital of France?",
  "Anna has 5 apples and buys 8 more. How many apples does she have now?",
  "What is 12 + 7? Answer with the number only.",
  "Write a haiku about the sea.",
  "Name three colors.",
  "Who wrote Hamlet?",
  "Translate 'good morning' into Spanish.",
  "Why is the sky blue?",
  "Give me a synonym of happy.",
  "def fibonacci(n):",
  "What comes after Tuesday?",
  "Is 17 a prime number?",
  "Résumé: what does the word mean?",
  "List the planets of the solar system.",
  "Spell the word 'necessary'.",
  "How do I boil an egg?",
  "What is H2O?",
  "Complete: the quick brown fox",
  "Explain gravity to a child.",
  "2, 4, 8, 16, what is next?",
)
PROMPT_TOKENS, TOKENS = 64, 40


def _ours(tokenizer):
  path = Path(DIRECTORY)
  config, mesh = hf.load_config(path), make_mesh()
  model = Decoder(config)
  params = hf.load_params(path, config, param_shardings(model, mesh))
  settings = SamplingConfig(
    max_prompt_tokens=PROMPT_TOKENS, max_completion_tokens=TOKENS, group_size=1
  )
  sampler = make_sampler(settings, model, tokenizer, mesh, hf.eos_ids(path))
  prompts = CollatePrompts(tokenizer, PROMPT_TOKENS, Chat())(
    [Example(question, "") for question in QUESTIONS]
  )
  rollout = sampler(params, prompts, jax.random.key(0), 0.0, 1)
  tokens, mask = jax.device_get((rollout.tokens, rollout.action_mask))
  return [row[real].tolist() for row, real in zip(tokens[:, 0], mask[:, 0], strict=True)]


def test_greedy_completions_are_those_of_transformers():
  tokenizer = load_tokenizer(Path(DIRECTORY))
  model = transformers.AutoModelForCausalLM.from_pretrained(DIRECTORY, dtype=torch.float32)
  theirs = []
  for question in QUESTIONS:
    chat = tokenizer.apply_chat_template(
      [{"role": "user", "content": question}],
      add_generation_prompt=True,
      return_tensors="pt",
      return_dict=True,
    )
    with torch.no_grad():
      tokens = model.generate(**chat, max_new_tokens=TOKENS, do_sample=False)
    theirs.append(tokens[0, chat["input_ids"].shape[1] :].tolist())
  ours = _ours(tokenizer)
  assert np.mean([len(x) for x in theirs]) > 10
  for question, a, b in zip(QUESTIONS, ours, theirs, strict=True):
    assert a == b, question


@pytest.mark.skipif(
  not (os.environ.get("PGAX_SMOLLM2_GGUF") and importlib.util.find_spec("accelerate")),
  reason="PGAX_SMOLLM2_GGUF is not set, or accelerate is not installed",
)
def test_weights_and_tokenizer_are_those_that_transformers_reads_from_the_file():
  file = Path(os.environ["PGAX_SMOLLM2_GGUF"])
  source = {"pretrained_model_name_or_path": file.parent, "gguf_file": file.name}
  theirs = transformers.AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32)
  ours = transformers.AutoModelForCausalLM.from_pretrained(DIRECTORY, dtype=torch.float32)
  expected = theirs.state_dict()
  assert ours.state_dict().keys() == expected.keys()
  for name, value in ours.state_dict().items():
    torch.testing.assert_close(value, expected[name], rtol=0, atol=1e-6)
  tokenizers = [
    transformers.AutoTokenizer.from_pretrained(**source),
    load_tokenizer(Path(DIRECTORY)),
  ]
  for question in (*QUESTIONS, "a  b\n\n\tc 1234 don't ☃ <|im_end|>"):
    chats = [
      x.apply_chat_template([{"role": "user", "content": question}], return_dict=False)
      for x in tokenizers
    ]
    assert chats[0] == chats[1], question
