"""Templates of prompts around a question."""

_SLOT = "{prompt}"

# From Stanford's CS336 (2025), assignment 5, after DeepSeek-R1, arXiv 2501.12948, table 1.
R1_ZERO = """\
A conversation between User and Assistant. The User asks a question, and the Assistant \
solves it. The Assistant first thinks about the reasoning process in the mind and then \
provides the User with the answer. The reasoning process is enclosed within <think> \
</think> and answer is enclosed within <answer> </answer> tags, respectively, i.e., \
<think> reasoning process here </think> <answer> answer here </answer>.
User: {prompt}
Assistant: <think>"""


def fill(template: str, prompt: str) -> str:
  """Inserts a question into a template; other braces are plain text.

  Args:
    template: text that has `{prompt}` exactly once.
    prompt: the question.

  Returns:
    The prompt.

  Raises:
    ValueError: if the template does not have `{prompt}` exactly once.
  """
  if template.count(_SLOT) != 1:
    raise ValueError(
      f"template is {template!r}; it must have {_SLOT!r} once, in place of the question"
    )
  return template.replace(_SLOT, prompt)
