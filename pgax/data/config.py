"""Settings of the prompts made of problems, and of stored completions."""

import dataclasses

from pgax.errors import check_one_of


@dataclasses.dataclass(frozen=True)
class DataConfig:
  """Settings that turn problems into prompts.

  Attributes:
    overlong_prompts: treatment of prompts over the length limit: `error` rejects the
      run, `drop` removes the problem and counts it.
    chat_template: whether to render prompts by the tokenizer's chat template, as a user's
      turn followed by the beginning of the assistant's.
    system_prompt: text of a system turn before the user's; empty for none.
    completions: JSON Lines file of stored completions to learn from in place of sampled
      ones, such as the `samples.jsonl` of a run (see `rollout.Stored`); empty samples.
  """

  overlong_prompts: str = "error"
  chat_template: bool = False
  system_prompt: str = ""
  completions: str = ""

  def __post_init__(self):
    check_one_of(self, ("error", "drop"), "overlong_prompts")
    if self.system_prompt and not self.chat_template:
      raise ValueError(
        f"system_prompt is {self.system_prompt!r} and chat_template is False; only chat "
        "templates have a system turn"
      )
