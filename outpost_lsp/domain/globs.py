"""The globs of permission rules: `*` `?` `**` and nothing else, anchored, case-sensitive (section 10 of the tool rules)."""

from __future__ import annotations

import re
from functools import lru_cache


@lru_cache(maxsize=1024)
def path_glob(pattern: str) -> re.Pattern[str]:
    """A glob on repository-relative paths: `*` stops at `/`, `**` does not, `**/` is zero or more whole folders."""
    pieces = []
    index = 0
    while index < len(pattern):
        if pattern.startswith("**/", index):
            pieces.append("(?:[^/]+/)*")
            index += 3
        elif pattern.startswith("**", index):
            pieces.append(".*")
            index += 2
        elif pattern[index] == "*":
            pieces.append("[^/]*")
            index += 1
        elif pattern[index] == "?":
            pieces.append("[^/]")
            index += 1
        else:
            pieces.append(re.escape(pattern[index]))
            index += 1
    return re.compile("".join(pieces), re.DOTALL)


@lru_cache(maxsize=1024)
def text_glob(pattern: str) -> re.Pattern[str]:
    """A glob on tool names and commands: `*` is any run, line breaks included; `?` is one character except `/`."""
    pieces = (".*" if char == "*" else "[^/]" if char == "?" else re.escape(char) for char in pattern)
    return re.compile("".join(pieces), re.DOTALL)
