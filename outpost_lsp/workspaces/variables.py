"""The variables that a repository's own `.outpost/.env` gives to commands in a sandbox (ENV-02 to ENV-05).

The invariant: nothing of the host comes along but the value of a name that the file lists without one. The repository's
`.env` is not read. A file that is a link, or too large, counts as absent. Called when a sandbox starts on a workspace.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

_LONGEST_FILE: Final = 65_536
_LINE: Final = re.compile(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=[ \t]*(.*?)\s*")
_DOUBLE: Final = re.compile(r'"((?:[^"\\]|\\.)*)"\s*(?:#.*)?')
_SINGLE: Final = re.compile(r"'([^']*)'\s*(?:#.*)?")
_COMMENT: Final = re.compile(r"\s#.*|^#.*")
_ESCAPES: Final[Mapping[str, str]] = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\"}


def file_variables(top: Path, host: Mapping[str, str]) -> dict[str, str]:
    """The variables of the file of the checkout at `top`; an empty value takes the host's, if it has one."""
    try:
        folder = os.open(top / ".outpost", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return {}
    try:
        file = os.open(".env", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return {}
    finally:
        os.close(folder)
    with os.fdopen(file, "rb") as opened:
        try:
            data = opened.read(_LONGEST_FILE + 1)
        except OSError:
            return {}
    found = {} if len(data) > _LONGEST_FILE else parse_variables(data.decode("utf-8", "replace"))
    listed = {name: value or host.get(name, "") for name, value in found.items()}
    return {name: value for name, value in listed.items() if value and "\0" not in value}


def parse_variables(text: str) -> dict[str, str]:
    """The names and values of such a file; lines that are none of it are passed over."""
    found = {}
    for line in text.splitlines():
        match = _LINE.fullmatch(line)
        if match is not None:
            found[match[1]] = _value(match[2])
    return found


def _value(text: str) -> str:
    if double := _DOUBLE.fullmatch(text):
        return re.sub(r"\\(.)", lambda escape: _ESCAPES.get(escape[1], escape[0]), double[1])
    if single := _SINGLE.fullmatch(text):
        return single[1]
    return _COMMENT.sub("", text).rstrip()
