"""The table of all settings for the documentation, made from the schema.

`python -m outpost_lsp.config.reference docs/configuration.md` writes it between its two marks; a test fails when the
file and the schema differ.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from outpost_lsp.config.describe import toml_value
from outpost_lsp.config.schema import json_schema

BEGIN: Final = "<!-- settings: begin -->"
END: Final = "<!-- settings: end -->"

_OWN_NAMES: Final = {
    "providers": "NAME",
    "models": "NAME",
    "deciders": "NAME",
    "routing": "NAME",
    "agents": "NAME",
    "mcp": "NAME",
}


def settings_tables() -> str:
    """One table for each section, in Markdown."""
    schema = json_schema()
    parts: dict[str, list[str]] = {}
    for section, key, node in _keys(schema, schema, ""):
        parts.setdefault(section, []).append(
            f"| `{key}` | {_kind(node, schema)} | {_default(node)} | {_meaning(node)} |"
        )
    head = "| key | value | default | meaning |\n| --- | --- | --- | --- |\n"
    titles = {section: f"### `[{section}]`" if section else "### At the top" for section in parts}
    return "\n\n".join(f"{titles[section]}\n\n{head}" + "\n".join(rows) for section, rows in parts.items())


def with_settings_tables(document: str) -> str:
    """The document with the tables of today between its marks."""
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the document needs the marks {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{settings_tables()}\n\n{END}{after}"


def _keys(
    node: Mapping[str, Any], schema: Mapping[str, Any], section: str
) -> Iterator[tuple[str, str, dict[str, Any]]]:
    below: list[tuple[str, Mapping[str, Any]]] = []
    for key, field in node.get("properties", {}).items():
        table = _table(field, schema)
        if table is None:
            yield section, key, field
        else:
            name = f"{section}.{key}" if section else key
            below.append((f"{name}.{_OWN_NAMES[name]}" if name in _OWN_NAMES else name, table))
    for name, table in below:
        yield from _keys(table, schema, name)


def _table(field: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any] | None:
    for option in (field, *field.get("anyOf", ())):
        if "$ref" in option:
            return _resolved(option, schema)
        named = [option.get("additionalProperties"), *option.get("patternProperties", {}).values()]
        for items in named:
            if isinstance(items, Mapping) and "$ref" in items:
                return _resolved(items, schema)
    return None


def _resolved(node: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = schema["$defs"][node["$ref"].rpartition("/")[2]]
    return found


def _kind(node: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    options = [option for option in node.get("anyOf", node.get("oneOf", [node])) if option.get("type") != "null"]
    return " or ".join(_one_kind(option, schema) for option in options)


def _one_kind(node: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    if "$ref" in node:
        return "a table of " + ", ".join(f"`{name}`" for name in _resolved(node, schema)["properties"])
    if "enum" in node or "const" in node:
        return ", ".join(f"`{value}`" for value in node.get("enum", [node.get("const")]))
    match node.get("type"):
        case "array":
            return f"list of {_one_kind(node['items'], schema)}"
        case "integer":
            return f"whole number from {node['minimum']}" if "minimum" in node else "whole number"
        case "number":
            return _range(node)
        case "boolean":
            return "`true` or `false`"
        case "object":
            return "table of text"
    return "text"


def _range(node: Mapping[str, Any]) -> str:
    if "exclusiveMinimum" in node:
        return f"number above {node['exclusiveMinimum']:g}"
    if "minimum" in node and "maximum" in node:
        return f"number from {node['minimum']:g} to {node['maximum']:g}"
    return f"number from {node['minimum']:g}"


def _default(node: Mapping[str, Any]) -> str:
    default = node.get("default")
    return "" if default is None else f"`{toml_value(default)}`"


def _meaning(node: Mapping[str, Any]) -> str:
    return " ".join(str(node.get("description", "")).split()).replace("|", "\\|")


def _write(path: Path) -> None:
    path.write_text(with_settings_tables(path.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    _write(Path(sys.argv[1]))
