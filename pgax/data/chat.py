"""Renders prompts as a chat with the tokenizer's own template."""

import dataclasses
import importlib.util

from transformers import PreTrainedTokenizerFast


@dataclasses.dataclass(frozen=True)
class Chat:
  """Renders a prompt as a user turn, up to the start of the assistant turn.

  The ids are those of `tokenizer.apply_chat_template(..., add_generation_prompt=True)`.

  Attributes:
    system_prompt: content of a system turn before the user turn; empty for none.
  """

  system_prompt: str = ""

  def check(self, tokenizer: PreTrainedTokenizerFast) -> None:
    """Checks that the tokenizer can render a chat, by rendering one.

    Args:
      tokenizer: tokenizer to check.

    Raises:
      ValueError: if the tokenizer has no template, its template fails, or Jinja, the
        language of templates, is not installed.
    """
    if not tokenizer.chat_template:
      raise ValueError(
        "the tokenizer has no chat template; set data.chat_template to False, or use a "
        "model that has one"
      )
    if importlib.util.find_spec("jinja2") is None:
      raise ValueError("chat templates need Jinja: pip install 'pgax[chat]'")
    self.encode(tokenizer, "1")

  def encode(self, tokenizer: PreTrainedTokenizerFast, prompt: str) -> list[int]:
    """Encodes a prompt and all text that the template adds.

    Args:
      tokenizer: tokenizer with a chat template.
      prompt: content of the user turn.

    Returns:
      The ids.

    Raises:
      ValueError: if the prompt contains the text of a special token, which would let the
        user end the turn; or if the template fails, as some do for system turns.
    """
    import jinja2  # an extra

    special = sorted(token for token in _special_tokens(tokenizer) if token in prompt)
    if special:
      raise ValueError(
        f"a prompt contains {special[0]!r}, which a chat template would encode as a "
        "special token; remove the problem, or set data.chat_template to False"
      )
    messages = [{"role": "user", "content": prompt}]
    if self.system_prompt:
      messages.insert(0, {"role": "system", "content": self.system_prompt})
    try:
      return tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, tokenize=True, return_dict=False
      )
    except jinja2.TemplateError as error:
      system = f" with data.system_prompt {self.system_prompt!r}" * bool(self.system_prompt)
      raise ValueError(
        f"the tokenizer's chat template can't render a prompt{system}: "
        f"{type(error).__name__}: {error}; "
        + "set data.system_prompt to '', or " * bool(self.system_prompt)
        + "set data.chat_template to False"
      ) from None


def _special_tokens(tokenizer: PreTrainedTokenizerFast) -> set[str]:
  added = tokenizer.added_tokens_decoder.values()
  return {*tokenizer.all_special_tokens, *(x.content for x in added if x.special)}
