"""Verifies JSON against a schema."""

import dataclasses
import importlib.util
import json
from collections.abc import Mapping
from typing import Any

from pgax.rewards.fences import last_block
from pgax.types import NO_METADATA, Metadata


def _reject_constant(name: str) -> None:
  raise ValueError(f"{name} is not JSON")


@dataclasses.dataclass(frozen=True)
class JSONSchema:
  """Scores whether a completion is JSON that a schema allows; needs the extra `json`.

  The JSON is the last fenced block with the label `json`, or else the last one without a
  label, or else the entire completion. JSON that is too deep or too large to check is
  invalid. References to other documents are never fetched.

  Attributes:
    schema: schema as JSON text. If it is empty, each problem has its own schema under
      `schema` in its metadata, as text or as an object.
  """

  schema: str = ""

  def __post_init__(self):
    if importlib.util.find_spec("jsonschema") is None:
      raise ValueError("JSONSchema needs jsonschema: pip install 'pgax[json]'")
    if self.schema:
      _validator(self.schema)

  def __call__(
    self, prompt: str, completion: str, ground_truth: str, metadata: Metadata = NO_METADATA
  ) -> dict[str, float]:
    """Scores a completion.

    `metadata` has the problem's `schema`; not used if the reward function has one.

    Returns:
      `reward` and `accuracy`, 1.0 if the schema allows the JSON and 0.0 otherwise; and
      `format`, 1.0 if the completion is valid JSON and 0.0 otherwise.

    Raises:
      ValueError: if there is no schema, or it is invalid.
    """
    del prompt, ground_truth
    schema = self.schema or metadata.get("schema")
    if schema is None:
      raise ValueError(
        f"the metadata has the keys {sorted(metadata)} and no 'schema'; add it there, or "
        "set the schema of the reward function"
      )
    validator = _validator(schema)
    block = last_block(completion, ("json",))
    text = completion if block is None else block
    try:
      value = json.loads(text, parse_constant=_reject_constant)
    except (ValueError, RecursionError):  # invalid, or nested too deeply
      return {"reward": 0.0, "accuracy": 0.0, "format": 0.0}
    try:
      valid = float(validator.is_valid(value))
    except (RecursionError, ArithmeticError):  # recursive schemas recurse with the value
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
  # An empty registry: the default one fetches the documents that a schema refers to.
  return kind(schema, registry=referencing.Registry())
