"""The JSON Schema subset of tool inputs (SCHEMA rules).

`check_schema` refuses a schema when a tool is declared; `schema_issues` says everything that is wrong with an input.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from outpost_lsp.errors import OutpostError

_TYPES: Final = ("object", "array", "string", "number", "integer", "boolean", "null")


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_number(value: Any) -> bool:
    # An integer may be too large for a float, which is no reason to call it infinite.
    return type(value) is int or (type(value) is float and math.isfinite(value))


def _is_type(value: Any) -> bool:
    names = [value] if isinstance(value, str) else value
    return isinstance(names, list) and bool(names) and all(name in _TYPES for name in names)


def _is_text_list(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _is_schema_map(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(key, str) for key in value)


_KEYWORDS: Final[Mapping[str, Callable[[Any], bool]]] = {
    "type": _is_type,
    "title": lambda value: isinstance(value, str),
    "description": lambda value: isinstance(value, str),
    "properties": _is_schema_map,
    "required": _is_text_list,
    "additionalProperties": lambda value: isinstance(value, bool | dict),
    "items": lambda value: isinstance(value, dict),
    "enum": lambda value: isinstance(value, list) and bool(value),
    "const": lambda _value: True,
    "minLength": _is_count,
    "maxLength": _is_count,
    "minimum": _is_number,
    "maximum": _is_number,
    "minItems": _is_count,
    "maxItems": _is_count,
}


def check_schema(schema: Any, path: str = "input") -> None:
    """Raise `configuration` for an unknown keyword, type or malformed keyword value, at any depth (SCHEMA-01)."""
    if not isinstance(schema, Mapping):
        raise OutpostError("configuration", f"{path}: a JSON Schema object is expected")
    for keyword, value in schema.items():
        accepts = _KEYWORDS.get(keyword)
        if accepts is None:
            known = ", ".join(_KEYWORDS)
            raise OutpostError("configuration", f"{path}: the keyword {keyword!r} is not supported; known: {known}")
        if not accepts(value):
            raise OutpostError("configuration", f"{path}: the value of {keyword!r} is malformed")
    for name, part in schema.get("properties", {}).items():
        check_schema(part, f"{path}.{name}")
    if isinstance(additional := schema.get("additionalProperties"), Mapping):
        check_schema(additional, f"{path}.*")
    if "items" in schema:
        check_schema(schema["items"], f"{path}[]")


def schema_issues(schema: Mapping[str, Any], value: Any) -> tuple[str, ...]:
    """Everything that is wrong with `value`, each with a path that starts at `input` (SCHEMA-02)."""
    return tuple(_issues(schema, value, "input"))


def _issues(schema: Mapping[str, Any], value: Any, path: str) -> Iterator[str]:
    if "type" in schema:
        names = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
        if not any(_has_type(value, name) for name in names):
            # What follows would only repeat the mismatch.
            yield f"{path}: expected {' or '.join(names)}, got {_type_name(value)}"
            return
    if "enum" in schema and not any(_same(value, option) for option in schema["enum"]):
        yield f"{path}: expected one of {', '.join(map(repr, schema['enum']))}"
    if "const" in schema and not _same(value, schema["const"]):
        yield f"{path}: expected {schema['const']!r}"
    if isinstance(value, str):
        yield from _bounds(len(value), schema, "minLength", "maxLength", path, "characters")
    elif isinstance(value, list):
        yield from _bounds(len(value), schema, "minItems", "maxItems", path, "items")
        if "items" in schema:
            for index, item in enumerate(value):
                yield from _issues(schema["items"], item, f"{path}[{index}]")
    elif isinstance(value, dict):
        yield from _object_issues(schema, value, path)
    elif _is_number(value):
        yield from _bounds(value, schema, "minimum", "maximum", path, "")


def _object_issues(schema: Mapping[str, Any], value: dict[Any, Any], path: str) -> Iterator[str]:
    properties = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{path}.{name}: is required"
    additional = schema.get("additionalProperties", True)
    for name, item in value.items():
        if name in properties:
            yield from _issues(properties[name], item, f"{path}.{name}")
        elif additional is False:
            yield f"{path}.{name}: there is no such field"
        elif isinstance(additional, Mapping):
            yield from _issues(additional, item, f"{path}.{name}")


def _bounds(size: float, schema: Mapping[str, Any], low: str, high: str, path: str, unit: str) -> Iterator[str]:
    unit = f" {unit}" if unit else ""
    if low in schema and size < schema[low]:
        yield f"{path}: at least {schema[low]}{unit} expected"
    if high in schema and size > schema[high]:
        yield f"{path}: at most {schema[high]}{unit} expected"


def _has_type(value: Any, name: str) -> bool:
    match name:
        case "object":
            return isinstance(value, dict)
        case "array":
            return isinstance(value, list)
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "null":
            return value is None
        case "integer":
            return _is_number(value) and (type(value) is int or value.is_integer())
        case _:
            return _is_number(value)


def _type_name(value: Any) -> str:
    return next((name for name in ("null", "boolean", "integer", "number", "string", "array", "object")
                 if _has_type(value, name)), type(value).__name__)  # fmt: skip


def _same(left: Any, right: Any) -> bool:
    # By JSON value: True is not 1, 1.0 is 1.
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(_same, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(left[key], right[key]) for key in left)
    return bool(left == right)
