"""Positions between what people's editors count and code points, which everything below counts.

Lines end with LF, CR LF or a lone CR and with nothing else, as the language server protocol has it. Characters that a
line does not have are cut to its end, and a position inside a character is moved before it, so that every conversion
is total. Used by both faces.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from outpost_lsp.protocol.names import Encoding

if TYPE_CHECKING:
    from outpost_lsp.domain.finding import Span

_HIGH_SURROGATE, _LOW_SURROGATE = range(0xD8, 0xDC), range(0xDC, 0xE0)
"""The upper bytes of the two halves of a character beyond U+FFFF."""


def split_lines(text: str) -> list[str]:
    """The lines with their ends; the last one has none and may be empty."""
    lines = io.StringIO(text, newline="").readlines()
    if not lines or lines[-1][-1] in "\r\n":
        lines.append("")
    return lines


def without_line_end(line: str) -> str:
    """The line without its end."""
    if line.endswith("\r\n"):
        return line[:-2]
    return line[:-1] if line.endswith(("\n", "\r")) else line


def code_points(line: str, units: int, encoding: Encoding) -> int:
    """How many code points of `line` lie before the offset `units`."""
    content = without_line_end(line)
    if units <= 0:
        return 0
    if encoding == "utf-32" or content.isascii():
        return min(units, len(content))
    if encoding == "utf-8":
        data = content[:units].encode("utf-8", "surrogatepass")
        cut = min(units, len(data))
        while cut < len(data) and data[cut] & 0xC0 == 0x80:
            cut -= 1
        return len(data[:cut].decode("utf-8", "surrogatepass"))
    data = content[: units + 1].encode("utf-16-le", "surrogatepass")
    cut = min(2 * units, len(data))
    if 0 < cut < len(data) and data[cut - 1] in _HIGH_SURROGATE and data[cut + 1] in _LOW_SURROGATE:
        cut -= 2
    return len(data[:cut].decode("utf-16-le", "surrogatepass"))


def encoded_units(line: str, index: int, encoding: Encoding) -> int:
    """The offset, in units of `encoding`, of the code point number `index` of `line`."""
    before = without_line_end(line)[: max(0, index)]
    if encoding == "utf-32" or before.isascii():
        return len(before)
    if encoding == "utf-8":
        return len(before.encode("utf-8", "surrogatepass"))
    return len(before.encode("utf-16-le", "surrogatepass")) // 2


def position_json(lines: Sequence[str], line: int, index: int, encoding: Encoding) -> dict[str, int]:
    """An LSP position for a place counted in code points."""
    if not 0 <= line < len(lines):
        # A place that the text at hand does not have is passed on as counted; nothing better is known.
        return {"line": max(0, line), "character": max(0, index)}
    if line == 0:
        index += _mark(lines)
    return {"line": line, "character": encoded_units(lines[line], index, encoding)}


class Stretch(Protocol):
    """Anything with the four numbers of a span."""

    @property
    def start_line(self) -> int: ...

    @property
    def start_character(self) -> int: ...

    @property
    def end_line(self) -> int: ...

    @property
    def end_character(self) -> int: ...


def range_json(lines: Sequence[str], span: Stretch, encoding: Encoding) -> dict[str, Any]:
    """An LSP range for a span counted in code points."""
    return {
        "start": position_json(lines, span.start_line, span.start_character, encoding),
        "end": position_json(lines, span.end_line, span.end_character, encoding),
    }


def place(lines: Sequence[str], line: int, units: int, encoding: Encoding) -> tuple[int, int]:
    """An LSP position as line and code points, cut to what the text has."""
    if line < 0:
        return 0, 0
    if line >= len(lines):
        last = len(lines) - 1
        return last, len(without_line_end(lines[last]))
    return line, code_points(lines[line], units, encoding)


def span_of(lines: Sequence[str], start: tuple[int, int], end: tuple[int, int], encoding: Encoding) -> Span:
    """The span of an LSP range given as (line, character) pairs; ends that are swapped are put in order."""
    # Documents need positions before anything is loaded that needs a span.
    from outpost_lsp.domain.finding import Span

    (first, begin), (last, finish) = sorted((place(lines, *start, encoding), place(lines, *end, encoding)))
    begin, finish = (begin - _mark(lines) if not first else begin, finish - _mark(lines) if not last else finish)
    return Span(start_line=first, start_character=max(0, begin), end_line=last, end_character=max(0, finish))


def _mark(lines: Sequence[str]) -> int:
    """1 for a text that begins with a byte-order mark: it is no part of what below counts, but editors may count it."""
    return 1 if lines[0].startswith("\ufeff") else 0
