"""Text of models made harmless for people's eyes: nothing hidden, nothing that acts when shown (SEC-19).

`visible` writes characters that hide or reorder text as their numbers. `safe_markdown` keeps formatting and code, but
leaves no raw HTML, no image, and no link except to https and to files below the workspace. Where it is unsure whether
something is code it treats it as text, so that a reader that parses differently is not tricked. Both may be applied
twice without a change. Whoever accepts text of a model for showing calls them. `plain` takes the marks out again for a
reader that shows none.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Final

_KEPT_CONTROLS: Final = frozenset("\n\t")
_KEPT_FORMATS: Final = frozenset("\u200c\u200d\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2")
"""Joiners that scripts and emoji need, and marks that stand before Arabic numbers."""

_FENCE: Final = re.compile(r"(`{3,})[^`]*$|(~{3,}).*$")
_BACKTICKS: Final = re.compile(r"`+")
_LINK: Final = re.compile(r"\]\(\s*([^\s)]*)(\)?)")
_TAG: Final = re.compile(r"(\\*)<(?=[A-Za-z/!?])")
_REFERENCE: Final = re.compile(r"(\\*)(&(?:#[0-9]+|#[xX][0-9A-Fa-f]+|[A-Za-z][A-Za-z0-9]*);)")
_IMAGE: Final = re.compile(r"(\\*)!\[")
_ESCAPED: Final = re.compile(r"\\([!-/:-@\[-`{-~])")
_BOLD: Final = re.compile(r"(?<![\\*])\*\*(?=[^\s*])(.+?)(?<![\s\\*])\*\*(?!\*)")
_BARE_ADDRESS: Final = re.compile(r"(?i)\b((?:http|ftp):)//|\b(www)\.|(?<=[\w.+-])(@)(?=[\w-]+\.)")


def visible(text: str) -> str:
    """The text with control, reordering, invisible and tag characters written as numbers; line ends become LF."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if text.isascii() and text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return "".join(f"\\u{{{ord(char):04X}}}" if _is_hidden(char) else char for char in text)


def one_line(text: str, limit: int = 200) -> str:
    """`visible` text as a single line of at most `limit` characters."""
    line = " ".join(visible(text).split())
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"


def safe_markdown(text: str) -> str:
    """Markdown that shows what it says and does nothing else."""
    pieces: list[str] = []
    paragraph: list[str] = []
    fence = ""
    for line in visible(text).split("\n"):
        if fence:
            pieces.append(line)
            fence = "" if _ends_fence(line, fence) else fence
            continue
        opening = _FENCE.match(line)
        if opening or not line.strip():
            pieces.extend(_safe_paragraph(paragraph))
            paragraph = []
            pieces.append(line)
            fence = (opening.group(1) or opening.group(2)) if opening else ""
        else:
            paragraph.append(line)
    pieces.extend(_safe_paragraph(paragraph))
    return "\n".join(pieces)


def plain(markdown: str) -> str:
    """`safe_markdown` text for readers that show no Markdown: as it is, without the backslashes and the bold marks."""
    lines: list[str] = []
    fence = ""
    for line in visible(markdown).split("\n"):
        if fence:
            fence = "" if _ends_fence(line, fence) else fence
            lines.append(line)
        elif opening := _FENCE.match(line):
            fence = opening.group(1) or opening.group(2)
            lines.append(line)
        else:
            lines.append(_plain_line(line))
    return "\n".join(lines)


def _plain_line(line: str) -> str:
    pieces = list(_code_spans(line))
    if None in pieces:
        return _plain_text(line)
    return "".join(
        piece if piece.startswith("`") and "|" not in piece else _plain_text(piece) for piece in map(str, pieces)
    )


def _plain_text(text: str) -> str:
    return _ESCAPED.sub(r"\1", _BOLD.sub(r"\1", text))


def _ends_fence(line: str, fence: str) -> bool:
    mark = line.strip()
    return bool(mark) and not mark.strip(fence[0]) and len(mark) >= len(fence)


def _is_hidden(character: str) -> bool:
    match unicodedata.category(character):
        case "Cc":
            return character not in _KEPT_CONTROLS
        case "Cf":
            return character not in _KEPT_FORMATS
        case "Zl" | "Zp" | "Cs":
            return True
        case _:
            return "\U000e0000" <= character <= "\U000e0fff"


def _safe_paragraph(lines: list[str]) -> list[str]:
    if not lines:
        return []
    cut = [list(_code_spans(line)) for line in lines]
    if any(line is None for spans in cut for line in spans):
        # A code span might begin on one line and end on another: then nothing here is taken for code.
        return _safe_text("\n".join(lines)).split("\n")
    return ["".join(_safe_piece(piece) for piece in spans if piece is not None) for spans in cut]


def _code_spans(line: str) -> Iterator[str | None]:
    """The line in pieces, text and code in turn; ends with `None` when a run of backticks has no partner."""
    position = 0
    while opening := _BACKTICKS.search(line, position):
        closing = next(
            (run for run in _BACKTICKS.finditer(line, opening.end()) if run.group() == opening.group()), None
        )
        if closing is None:
            yield None
            return
        yield line[position : opening.start()]
        yield line[opening.start() : closing.end()]
        position = closing.end()
    yield line[position:]


def _safe_piece(piece: str) -> str:
    # A bar may end a table's cell, and the code with it.
    return piece if piece.startswith("`") and "|" not in piece else _safe_text(piece)


def _safe_text(text: str) -> str:
    text = _REFERENCE.sub(_without_hidden, text)
    text = _IMAGE.sub(lambda match: match.group() if len(match.group(1)) % 2 else f"{match.group(1)}\\!\\[", text)
    text = _LINK.sub(lambda match: match.group() if _may_link(*match.groups()) else "]\\(" + match.group()[2:], text)
    text = text.replace("]:", "]\\:")
    text = _TAG.sub(lambda match: match.group() if len(match.group(1)) % 2 else f"{match.group(1)}\\<", text)
    return _BARE_ADDRESS.sub(_disarmed, text)


def _without_hidden(match: re.Match[str]) -> str:
    """A character reference; escaped when a reader would turn it into what `visible` takes out."""
    # Its table of names is large, and few texts hold a reference.
    import html

    slashes, reference = match.groups()
    if len(slashes) % 2 or not any(_is_hidden(char) for char in html.unescape(reference)):
        return match.group()
    return f"{slashes}\\{reference}"


def _disarmed(match: re.Match[str]) -> str:
    scheme, host, at = match.groups()
    return f"{scheme}\\//" if scheme else f"{host}\\." if host else "\\" + str(at)


def _may_link(destination: str, bracket: str) -> bool:
    if not destination:
        # Where the text ends here, the destination may stand on the next line.
        return bool(bracket)
    if destination.startswith("<"):
        # Readers differ in where such a destination ends.
        return False
    # Its table of names is large, and few texts hold a link.
    import html

    address = html.unescape(destination).replace("\\", "")
    if address.lower().startswith("https://"):
        return True
    before, colon, _ = address.partition(":")
    return not address.startswith("/") and ".." not in address.split("/") and (not colon or "/" in before)
