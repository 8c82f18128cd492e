"""What a document of the inbox must be: `contract/inbox.schema.json`, as far as that uses JSON Schema."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from bson import ObjectId

SCHEMA: dict[str, Any] = json.loads(Path(__file__).with_name("inbox.schema.json").read_text("utf-8"))

TYPES: dict[str, Callable[[Any], bool]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "number": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
    "integer": lambda value: TYPES["number"](value) and value == value // 1,
    "string": lambda value: isinstance(value, str),
    "array": lambda value: isinstance(value, (list, tuple)),
    "object": lambda value: isinstance(value, Mapping),
}


def problem(value: Any, rule: Mapping[str, Any] = SCHEMA, name: str = "the document") -> str | None:
    """How a value is not what the schema says."""
    if "$ref" in rule:
        rule = SCHEMA["$defs"][rule["$ref"].rpartition("/")[2]]
    if "not" in rule:
        return f"{name}: {rule['description']}"
    if isinstance(value, ObjectId):
        value = {"$oid": str(value)}
    elif isinstance(value, datetime):
        value = {"$date": value}
    if not _fits(value, rule):
        return f"{name} must be {rule['description']}"
    if not isinstance(value, Mapping) or "properties" not in rule:
        return None
    known = rule["properties"]
    for lacking in rule.get("required", ()):
        if lacking not in value:
            return f"{lacking} is missing"
    for key, one in value.items():
        if key not in known:
            return f"{key} is unknown; known are {', '.join(name for name, one in known.items() if 'not' not in one)}"
        if found := problem(one, known[key], key):
            return found
    return None


def _fits(value: Any, rule: Mapping[str, Any]) -> bool:
    types = rule.get("type", ())
    if types and not any(TYPES[one](value) for one in ([types] if isinstance(types, str) else types)):
        return False
    if "anyOf" in rule and all(problem(value, {"description": "", **one}) for one in rule["anyOf"]):
        return False
    if "const" in rule and value != rule["const"] or "enum" in rule and value not in rule["enum"]:
        return False
    if TYPES["number"](value):
        return bool(rule.get("minimum", value) <= value <= rule.get("maximum", value))
    if isinstance(value, str):
        return bool(rule.get("minLength", 0) <= len(value) <= rule.get("maxLength", len(value)))
    if isinstance(value, (list, tuple)):
        return bool(rule.get("minItems", 0) <= len(value) <= rule.get("maxItems", len(value)))
    return True
