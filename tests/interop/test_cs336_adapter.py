"""The adapter of docs/cs336.md runs the interface of the course on PyTorch's tensors."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from pgax.data import byte_tokenizer
from pgax.interop import cs336_2026

PAGE = Path(__file__).parents[2] / "docs" / "cs336.md"


@pytest.fixture(scope="module")
def adapters():
  """The names that the adapter defines, of both editions."""
  blocks = re.findall(
    r"```python\n# tests/adapters.py(.*?)```", PAGE.read_text(), re.DOTALL
  )
  both, step_2026 = (block.removeprefix(", 2026") for block in blocks)
  first, second = {}, {}
  exec(both, first)
  exec(both.replace("import cs336", "import cs336_2026 as cs336") + step_2026, second)
  return first, second


def test_the_example_of_the_page():
  namespace = {}
  (block,) = re.findall(r"```python\n(from pgax.*?)```", PAGE.read_text(), re.DOTALL)
  exec(block, namespace)
  np.testing.assert_allclose(namespace["advantages"], [0.7071, -0.7071], atol=1e-4)


def test_gradients_accumulate_in_torch(adapters):
  logp = torch.full((2, 3), -1.0, requires_grad=True)
  mask = torch.tensor([[True, True, False], [True, False, False]])
  for count in (1, 2):
    loss, _ = adapters[0]["run_grpo_microbatch_train_step"](
      policy_log_probs=logp,
      response_mask=mask,
      gradient_accumulation_steps=1,
      loss_type="reinforce_with_baseline",
      advantages=torch.tensor([[1.0], [-2.0]]),
    )
    assert isinstance(loss, torch.Tensor) and loss == pytest.approx(-0.5)
    expected = [[-0.25, -0.25, 0.0], [1.0, 0.0, 0.0]]
    np.testing.assert_allclose(logp.grad, np.multiply(count, expected), rtol=1e-6)


@pytest.fixture(scope="module")
def batch():
  """A tiny GPT-2 and arguments of a train step, for a batch of two groups."""
  tokenizer = byte_tokenizer()
  torch.manual_seed(0)
  sizes = {"n_positions": 32, "n_embd": 8, "n_layer": 1, "n_head": 2}
  model = GPT2LMHeadModel(GPT2Config(vocab_size=len(tokenizer), **sizes)).eval()
  arguments = {
    "repeated_prompts": ["1+1=", "1+1=", "2+1=", "2+1="],
    "rollout_responses": ["2", "no", "3!", "4"],
    "repeated_ground_truths": ["2", "2", "3", "3"],
    "reward_fn": lambda text, truth: {"reward": float(truth in text)},
    "group_size": 2,
  }
  return model, tokenizer, arguments


def test_log_probs_of_a_torch_model(adapters, batch):
  model, tokenizer, arguments = batch
  rows = cs336_2026.tokenize_prompt_and_output(
    arguments["repeated_prompts"], arguments["rollout_responses"], tokenizer
  )
  ids, labels = (torch.tensor(rows[name]).long() for name in ("input_ids", "labels"))
  scores = adapters[0]["run_get_response_log_probs"](model, ids, labels, True)
  expected = model(ids).logits.detach().log_softmax(-1)
  entropy = -(expected.exp() * expected).sum(-1)
  expected = expected.gather(-1, labels[..., None])[..., 0]
  np.testing.assert_allclose(scores["log_probs"], expected, rtol=1e-5, atol=1e-5)
  np.testing.assert_allclose(scores["token_entropy"], entropy, rtol=1e-5)


@pytest.mark.parametrize(
  "options",
  [{}, {"loss_normalization": "constant", "normalization_constant": 9}],
)
def test_microbatches_of_the_2026_step_add_up(adapters, batch, options):
  model, tokenizer, arguments = batch
  start = {name: x.detach().clone() for name, x in model.named_parameters()}
  ends = []
  for steps in (1, 2):
    model.load_state_dict(start, strict=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss, metadata = adapters[1]["run_grpo_train_step"](
      model, tokenizer, optimizer, steps, None, **arguments, **options
    )
    assert metadata["reward_mean"] == 0.5 and metadata["grad_norm"] > 0
    change = [(x - start[name]).detach().ravel() for name, x in model.named_parameters()]
    ends.append((float(loss.detach()), torch.cat(change).numpy()))
  assert ends[0][0] == pytest.approx(ends[1][0], rel=1e-4)
  assert np.abs(ends[0][1]).max() > 1e-3
  np.testing.assert_allclose(ends[0][1], ends[1][1], rtol=1e-3, atol=1e-6)
