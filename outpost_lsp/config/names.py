"""The names of settings: one spelling for all, unknown ones refused with what was probably meant.

TOML is written in snake_case; JSON from a client may be camelCase, too. Names that are the user's own (of models,
agents, labels) are never touched. Works by the schema alone.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from types import UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin

from pydantic.alias_generators import to_camel, to_snake

from outpost_lsp.config.fields import Section
from outpost_lsp.config.schema import Settings
from outpost_lsp.config.toml_lines import Path

NameFault = tuple[Path, str]

_SECRET: Final = re.compile(r"(^|_)(api_?key|key|token|secret|password|passwd|credentials?)$")
_LIKE_A_KEY: Final = re.compile(r"(?=.*[a-z])(?=.*\d)[A-Za-z0-9_.:+/=-]{20,}")


class Named:
    """A tree of settings with canonical names, and what was left out of it."""

    def __init__(self, tree: Any, *, camel_case: bool) -> None:
        self.faults: list[NameFault] = []
        """Unknown names and names given twice."""
        self.secrets: list[NameFault] = []
        """Keys of services that somebody wrote into the settings."""
        self._camel_case = camel_case
        if isinstance(tree, Mapping):
            self.tree: dict[str, Any] = self._section(tree, Settings, ())
        else:
            self.tree = {}
            self.faults.append(((), "a table is expected"))

    def _section(self, tree: Mapping[Any, Any], section: type[Section], path: Path) -> dict[str, Any]:
        fields = section.model_fields
        named: dict[str, Any] = {}
        for written, value in tree.items():
            name = str(written)
            if name not in fields and self._camel_case and to_camel(to_snake(name)) == name:
                name = to_snake(name)
            place = (*path, str(written))
            if name not in fields:
                self._unknown(place, fields)
            elif name in named:
                self.faults.append((place, f"it is given twice, as {name} and {to_camel(name)}"))
            elif value is not None:
                named[name] = self._value(value, fields[name].rebuild_annotation(), (*path, name))
        return named

    def _value(self, value: Any, annotation: Any, path: Path) -> Any:
        inner, container = _inner_section(annotation)
        if inner is None:
            if (
                str(path[-1]).endswith(("_env", "_variable"))
                and isinstance(value, str)
                and _LIKE_A_KEY.fullmatch(value)
            ):
                self.secrets.append((path, KEY_IN_SETTINGS))
                return ""
            return value
        if container == "section" and isinstance(value, Mapping):
            return self._section(value, inner, path)
        if container == "table" and isinstance(value, Mapping):
            return {
                str(name): self._section(item, inner, (*path, str(name))) if isinstance(item, Mapping) else item
                for name, item in value.items()
                if item is not None
            }
        if container == "list" and isinstance(value, list | tuple):
            return [
                self._section(item, inner, (*path, number)) if isinstance(item, Mapping) else item
                for number, item in enumerate(value)
            ]
        return value

    def _unknown(self, path: Path, fields: Mapping[str, Any]) -> None:
        name = to_snake(str(path[-1]))
        if _SECRET.search(name):
            self.secrets.append((path, KEY_IN_SETTINGS))
            return
        known = [*fields, *map(to_camel, fields)] if self._camel_case else list(fields)
        near = difflib.get_close_matches(str(path[-1]), known, 1, 0.6) or difflib.get_close_matches(
            name, fields, 1, 0.6
        )
        hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(fields)}"
        self.faults.append((path, f"there is no such setting{hint}"))


KEY_IN_SETTINGS: Final = (
    "keys do not belong in settings, so this one is not used; put it into an environment variable and name that with "
    "api_key_env, or print it with api_key_command in your own file, or keep it in the editor's secret storage. "
    "If others can read this file, replace the key"
)


def _inner_section(annotation: Any) -> tuple[type[Section] | None, str]:
    """The section that values of this type hold, and whether it stands alone, in a table or in a list."""
    for candidate in _alternatives(annotation):
        if isinstance(candidate, type) and issubclass(candidate, Section):
            return candidate, "section"
        origin, arguments = get_origin(candidate), get_args(candidate)
        if not isinstance(origin, type) or not arguments:
            continue
        container = "list" if origin is tuple else "table" if issubclass(origin, Mapping) else ""
        inner, _ = _inner_section(arguments[-1 if container == "table" else 0]) if container else (None, "")
        if inner is not None:
            return inner, container
    return None, ""


def _alternatives(annotation: Any) -> Iterator[Any]:
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from _alternatives(get_args(annotation)[0])
    elif origin is Union or origin is UnionType:
        for argument in get_args(annotation):
            yield from _alternatives(argument)
    else:
        yield annotation
