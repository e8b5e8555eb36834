"""A replacement for a quote -> the edit that puts it in place.

The edit covers the quote and nothing else but white space around it, keeps the line ends of the place, and moves the
new lines by as much as the quote's indentation was moved when it was copied. Pure; the findings tool calls it.
"""

from __future__ import annotations

import re
from typing import Final

from outpost_lsp.domain.anchor import Anchor, SourceText, common_margin, indentation, quote_lines
from outpost_lsp.domain.finding import TextReplacement

_LINE_END: Final = re.compile(r"\r\n|\r|\n")


def replacement_edit(source: SourceText, anchor: Anchor, quote: str, replacement: str) -> TextReplacement | None:
    """The edit that puts `replacement` where `quote` was found; `None` when that changes nothing."""
    lines = _LINE_END.split(replacement.rstrip("\r\n"))
    lines = lines[_shared_blank_lines(quote, lines) :]
    start, end = anchor.start, anchor.end
    if not any(line.strip() for line in lines):
        start, end = _emptied(source, anchor)
        text = ""
    else:
        start, text = _placed(source, anchor, quote_lines(quote), lines)
    if text == source.text[start:end]:
        return None
    return TextReplacement(span=source.span(start, end), text=text)


def line_end_at(source: SourceText, anchor: Anchor) -> str:
    """The line end used in the quote, else the next one below it, else the first of the text, else LF."""
    found = _LINE_END.search(anchor.text) or _LINE_END.search(source.text, anchor.end) or _LINE_END.search(source.text)
    return found.group() if found else "\n"


def _shared_blank_lines(quote: str, lines: list[str]) -> int:
    count = 0
    for ours, theirs in zip(_LINE_END.split(quote), lines, strict=False):
        if ours.strip() or theirs.strip():
            break
        count += 1
    return count


def _emptied(source: SourceText, anchor: Anchor) -> tuple[int, int]:
    if not anchor.whole_lines:
        return anchor.start, anchor.end
    after = anchor.span.end_line + 1
    starts = source.line_starts
    return starts[anchor.span.start_line], starts[after] if after < len(starts) else len(source.text)


def _placed(source: SourceText, anchor: Anchor, quoted: list[str], lines: list[str]) -> tuple[int, str]:
    first_line = anchor.span.start_line
    line_start = source.line_starts[first_line]
    own = source.text[line_start : anchor.start]
    here = [indentation(line) for line in quoted[1:] if line]
    there = [source.indentations[first_line + index] for index, line in enumerate(quoted) if line and index]
    line_end = line_end_at(source, anchor)
    if own.strip():
        # The quote begins in the middle of a line, and so does what replaces it.
        rest = _moved(lines[1:], common_margin(here), common_margin(there))
        return anchor.start, line_end.join([lines[0].lstrip(), *rest])
    given = indentation(quoted[0])
    if bool(here) and here == there and own != given and own.endswith(given):
        # White space before the first line was cut when the quote was copied; the rest stands as it is.
        first = own + lines[0].removeprefix(given) if indentation(lines[0]) == given and lines[0].strip() else lines[0]
        moved = [first, *lines[1:]]
    else:
        margin_here = common_margin([given, *here])
        moved = _moved(lines, margin_here, common_margin([own, *there]))
    if moved[0].startswith(own):
        return anchor.start, line_end.join([moved[0][len(own) :], *moved[1:]])
    return line_start, line_end.join(moved)


def _moved(lines: list[str], margin_here: str, margin_there: str) -> list[str]:
    moved = []
    for line in lines:
        indent = indentation(line)
        if not line.strip():
            moved.append("")
        elif indent.startswith(margin_here):
            moved.append(margin_there + line[len(margin_here) :])
        elif margin_here.startswith(indent):
            kept = max(0, len(margin_there) - (len(margin_here) - len(indent)))
            moved.append(margin_there[:kept] + line.lstrip())
        else:
            moved.append(line)
    return moved
