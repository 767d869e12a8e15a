"""Prompts as a chat, rendered by the tokenizer's own template."""

import dataclasses
import importlib.util

from transformers import PreTrainedTokenizerFast


@dataclasses.dataclass(frozen=True)
class Chat:
  """Renders a prompt as the turn of a user, up to where the assistant's begins.

  The ids are those of `tokenizer.apply_chat_template(..., add_generation_prompt=True)`.

  Attributes:
    system_prompt: of a turn of the system in front; empty for none.
  """

  system_prompt: str = ""

  def check(self, tokenizer: PreTrainedTokenizerFast) -> None:
    """Makes sure that the tokenizer can render a chat, by rendering one.

    Raises:
      ValueError: if it has no template, or one that fails, or Jinja, which templates are
        written in, is not there.
    """
    if not tokenizer.chat_template:
      raise ValueError(
        "the tokenizer has no chat template; set data.chat_template to False, or take a "
        "model that has one"
      )
    if importlib.util.find_spec("jinja2") is None:
      raise ValueError("chat templates need Jinja: pip install 'pgax[chat]'")
    self.encode(tokenizer, "1")

  def encode(self, tokenizer: PreTrainedTokenizerFast, prompt: str) -> list[int]:
    """Ids of a prompt with all that the template puts around it.

    Args:
      tokenizer: has a chat template.
      prompt: what the user says.

    Returns:
      The ids.

    Raises:
      ValueError: if the prompt spells a special token: the template would make it one, and
        the user could end the turn. Or if the template fails; some refuse turns of the
        system.
    """
    import jinja2  # an extra

    spelled = sorted(token for token in _special(tokenizer) if token in prompt)
    if spelled:
      raise ValueError(
        f"a prompt spells the special token {spelled[0]!r}, which a chat template would "
        "take for one; leave the problem out, or set data.chat_template to False"
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


def _special(tokenizer: PreTrainedTokenizerFast) -> set[str]:
  added = tokenizer.added_tokens_decoder.values()
  return {*tokenizer.all_special_tokens, *(x.content for x in added if x.special)}
