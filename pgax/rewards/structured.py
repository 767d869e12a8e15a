"""Verifier of JSON against a schema."""

import dataclasses
import importlib.util
import json
from collections.abc import Mapping
from typing import Any

from pgax.rewards.fences import last_block
from pgax.types import NO_METADATA


def _no_constant(name: str) -> None:
  raise ValueError(f"{name} is not JSON")


@dataclasses.dataclass(frozen=True)
class JSONSchema:
  """Scores whether a completion is JSON that a schema allows; needs the extra `json`.

  The last fenced block of JSON is taken, or else the last one without a label, where there
  is one, and otherwise the whole completion. What is too deep or too large to be checked is
  not valid. References to other documents are never fetched.

  Attributes:
    schema: the schema as JSON text; empty to take each problem's own, which stands in its
      metadata under `schema`, as text or as an object.
  """

  schema: str = ""

  def __post_init__(self):
    if importlib.util.find_spec("jsonschema") is None:
      raise ValueError("JSONSchema needs jsonschema: pip install 'pgax[json]'")
    if self.schema:
      _validator(self.schema)

  def __call__(
    self,
    prompt: str,
    completion: str,
    ground_truth: str,
    metadata: Mapping[str, Any] = NO_METADATA,
  ) -> dict[str, float]:
    """Scores a completion.

    Args:
      prompt: not looked at.
      completion: the text to score.
      ground_truth: not looked at.
      metadata: of the problem; see `schema`.

    Returns:
      `reward` and `accuracy`, 1.0 if it is valid and 0.0 otherwise, and `format`, 1.0 if
      it is JSON at all.

    Raises:
      ValueError: if there is no schema, or one that is none.
    """
    del prompt, ground_truth
    schema = self.schema or metadata.get("schema")
    if schema is None:
      raise ValueError(
        f"the metadata has the keys {sorted(metadata)} and no 'schema'; give one there or "
        "to the reward function"
      )
    validator = _validator(schema)
    block = last_block(completion, ("json",))
    text = completion if block is None else block
    try:
      value = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):  # nested deeper than can be read
      return {"reward": 0.0, "accuracy": 0.0, "format": 0.0}
    try:
      valid = float(validator.is_valid(value))
    except (RecursionError, ArithmeticError):  # a schema may go as deep as what it checks
      valid = 0.0
    return {"reward": valid, "accuracy": valid, "format": 1.0}


def _validator(schema: str | Mapping[str, Any]) -> Any:
  import jsonschema  # an extra
  import referencing

  try:
    schema = json.loads(schema) if isinstance(schema, str) else schema
    kind = jsonschema.validators.validator_for(
      schema, default=jsonschema.Draft202012Validator
    )
    kind.check_schema(schema)
  except (ValueError, TypeError, jsonschema.SchemaError) as error:
    raise ValueError(f"schema is {schema!r}; it must be a JSON schema: {error}") from None
  # A registry of its own: the default one fetches what a schema refers to.
  return kind(schema, registry=referencing.Registry())
