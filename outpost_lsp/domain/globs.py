"""The globs of permission rules: `*` `?` `**` and nothing else, anchored, case-sensitive (section 10 of the tool rules).

A pattern becomes a regular expression that never tries a place twice: each part between two wildcards is taken at the
first place where it fits, which is as good as any later one. So a long path or command of a model costs no more than
its length, whatever the pattern. Use `fullmatch`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final, Literal

_Token = tuple[Literal["text", "one", "run", "long", "folders"], str]
_WILDCARDS: Final = re.compile(r"(?:(?<=/)|^)\*\*/|\*\*|\*|\?")
_ONE: Final = "[^/]"


@lru_cache(maxsize=1024)
def path_glob(pattern: str) -> re.Pattern[str]:
    """A glob on repository-relative paths: `*` stops at `/`, `**` does not, `**/` is zero or more whole folders."""
    return re.compile(_expression(list(_tokens(pattern))), re.DOTALL)


@lru_cache(maxsize=1024)
def text_glob(pattern: str) -> re.Pattern[str]:
    """A glob on tool names and commands: `*` is any run, `/` and line breaks included; `?` is one character but `/`."""
    tokens: list[_Token] = [("long", "") if kind == "run" else (kind, text) for kind, text in _tokens(pattern)]
    return re.compile(_expression(tokens), re.DOTALL)


def _tokens(pattern: str) -> Iterator[_Token]:
    position = 0
    for match in _WILDCARDS.finditer(pattern):
        if match.start() > position:
            yield "text", pattern[position : match.start()]
        match match.group():
            case "**/":
                yield "folders", ""
            case "**":
                yield "long", ""
            case "*":
                yield "run", ""
            case _:
                yield "one", ""
        position = match.end()
    if position < len(pattern):
        yield "text", pattern[position:]


def _expression(tokens: list[_Token]) -> str:
    """Parts that begin with a wildcard across folders, each taken at the first place where it fits."""
    parts: list[list[_Token]] = [[]]
    for token in tokens:
        if token[0] in {"long", "folders"}:
            parts.append([])
        parts[-1].append(token)
    first, *middle, last = parts if len(parts) > 1 else (parts[0], [])
    if len(parts) == 1:
        return _part(first, is_last=True)
    return _part(first) + "".join(f"(?>{_part(part)})" for part in middle) + _part(last, is_last=True)


def _part(tokens: list[_Token], *, is_last: bool = False) -> str:
    """One part; within it every run of a name is taken at the first place too, but for the one before the end."""
    last_run = max((index for index, (kind, _) in enumerate(tokens) if kind == "run"), default=-1)
    pieces = []
    is_open = False
    for index, (kind, text) in enumerate(tokens):
        match kind:
            case "text":
                pieces.append(re.escape(text))
            case "one":
                pieces.append(_ONE)
            case "long":
                pieces.append(".*?")
            case "folders":
                pieces.append("(?:[^/]*/)*?")
            case "run":
                pieces.append(")" if is_open else "")
                is_open = not (is_last and index == last_run)
                pieces.append("(?>[^/]*?" if is_open else "[^/]*")
    pieces.append(")" if is_open else "")
    return "".join(pieces)
