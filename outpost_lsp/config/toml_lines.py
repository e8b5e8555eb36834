"""On which line of a TOML text each key stands, so that a fault can point at it.

`tomllib` does not tell. The text has been read by it without a fault, so this scan only has to follow keys, strings and
brackets. Keys inside an inline table have the line of the table.
"""

from __future__ import annotations

import tomllib
from typing import Final

Path = tuple[str | int, ...]

_BARE: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")


def toml_lines(text: str) -> dict[Path, int]:
    """The line, from 1, of every table and key by its path; elements of arrays have their number as the last part."""
    scan = _Scan(text)
    try:
        scan.run()
    except (IndexError, ValueError):
        # Lines are a help for people; a text that this scan does not follow to the end keeps what was found.
        return scan.lines
    return scan.lines


class _Scan:
    def __init__(self, text: str) -> None:
        self.text = text
        self.lines: dict[Path, int] = {}
        self._at = 0
        self._line = 1
        self._table: Path = ()
        self._array_lengths: dict[Path, int] = {}

    def run(self) -> None:
        while self._skip_to_statement():
            if self.text[self._at] == "[":
                self._header()
            else:
                path = self._table + self._key()
                self._note(path, len(self._table))
                self._at += 1  # the equals sign
                self._value(path)

    def _header(self) -> None:
        is_array = self.text.startswith("[[", self._at)
        self._at += 2 if is_array else 1
        *parents, last = self._key()
        path: Path = ()
        for part in parents:
            path = self._element((*path, part))
        path = (*path, last) if is_array else self._element((*path, last))
        if is_array:
            number = self._array_lengths.get(path, 0)
            self._array_lengths[path] = number + 1
            path = (*path, number)
        self._table = path
        self._note(path, 0)
        self._at += 2 if is_array else 1

    def _element(self, path: Path) -> Path:
        """The path itself; for an array of tables, that of its newest element."""
        length = self._array_lengths.get(path)
        return path if length is None else (*path, length - 1)

    def _note(self, path: Path, known: int) -> None:
        for length in range(known + 1, len(path)):
            self.lines.setdefault(path[:length], self._line)
        self.lines[path] = self._line

    def _key(self) -> tuple[str, ...]:
        parts = []
        while True:
            self._skip_blanks()
            start = self._at
            if self.text[self._at] in "\"'":
                self._string()
                parts.append(str(tomllib.loads(f"k = {self.text[start : self._at]}")["k"]))
            else:
                while self.text[self._at] in _BARE:
                    self._at += 1
                if self._at == start:
                    raise ValueError("no key")
                parts.append(self.text[start : self._at])
            self._skip_blanks()
            if not self._is_at("."):
                return tuple(parts)
            self._at += 1

    def _value(self, path: Path) -> None:
        depth, number, is_new = 0, 0, False
        while self._at < len(self.text):
            mark = self.text[self._at]
            if mark == "\n" and depth == 0:
                return
            if mark == "#":
                self._skip_comment()
                continue
            if depth == 1 and is_new and mark not in " \t\r\n]":
                self.lines[(*path, number)] = self._line
                is_new = False
            if mark in "\"'":
                self._string()
                continue
            if mark in "[{":
                depth += 1
                is_new = is_new or (depth == 1 and mark == "[")
            elif mark in "]}":
                depth -= 1
            elif mark == "," and depth == 1:
                number, is_new = number + 1, True
            self._advance()

    def _string(self) -> None:
        mark = self.text[self._at]
        end = mark * 3 if self.text.startswith(mark * 3, self._at) else mark
        self._at += len(end)
        while not self.text.startswith(end, self._at):
            if mark == '"' and self.text[self._at] == "\\":
                self._at += 1
            self._advance()
        self._at += len(end)
        # A multi-line string may end with quotes of its own before the three that close it.
        while len(end) == 3 and self._is_at(mark):
            self._at += 1

    def _skip_to_statement(self) -> bool:
        while self._at < len(self.text):
            if self.text[self._at] == "#":
                self._skip_comment()
            elif self.text[self._at] in " \t\r\n":
                self._advance()
            else:
                return True
        return False

    def _skip_comment(self) -> None:
        while self._at < len(self.text) and self.text[self._at] != "\n":
            self._at += 1

    def _skip_blanks(self) -> None:
        while self.text[self._at] in " \t":
            self._at += 1

    def _is_at(self, mark: str) -> bool:
        return self.text.startswith(mark, self._at)

    def _advance(self) -> None:
        if self.text[self._at] == "\n":
            self._line += 1
        self._at += 1
