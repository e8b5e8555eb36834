"""Skills from folders: a `SKILL.md` with a head of `name` and `description`, and the guidance below it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from outpost_lsp.errors import configuration
from outpost_lsp.harness.instructions import Skill

_LIMIT_BYTES: Final = 1024 * 1024
_HEAD: Final = re.compile(r"\A---[ \t]*\r?\n(.*?)\r?\n---[ \t]*(?:\r?\n|\Z)(.*)\Z", re.DOTALL)
_FIELD: Final = re.compile(r"^(name|description)[ \t]*:[ \t]*(.*?)[ \t]*$", re.MULTILINE)


def load_skill(folder: Path) -> Skill:
    """The skill of a folder. `configuration` when it has no usable `SKILL.md`."""
    path = folder / "SKILL.md"
    try:
        with path.open("rb") as file:
            content = file.read(_LIMIT_BYTES + 1)
    except OSError as error:
        raise configuration(f"skills: {path} cannot be read: {error.strerror}") from error
    if len(content) > _LIMIT_BYTES:
        raise configuration(f"skills: {path} is larger than {_LIMIT_BYTES >> 20} MiB")
    found = _HEAD.match(content.decode("utf-8-sig", "replace"))
    if found is None:
        raise configuration(f"skills: {path} has no head between two lines of ---")
    fields = {name: _unquoted(value) for name, value in _FIELD.findall(found[1])}
    missing = [name for name in ("name", "description") if not fields.get(name)]
    if missing:
        raise configuration(f"skills: {path} has no {missing[0]} in its head")
    if not found[2].strip():
        raise configuration(f"skills: {path} says nothing below its head")
    return Skill(fields["name"], fields["description"], found[2].strip())


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" else text
