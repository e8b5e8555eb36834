"""Text that a model wrote, made harmless for people's screens (SEC-19).

What comes out has no raw HTML, no image, no link but to `https` or to a file that the caller vouches for, and shows
characters that hide or reorder text as escapes. The text is written anew rather than patched: everything that could
begin a construct is escaped unless it was recognised as a harmless one. Used for hovers, messages and pages.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

_SUSPICIOUS: Final = re.compile(
    "[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200e\u200f"
    "\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\ud800-\udfff\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})\s*([A-Za-z0-9_+#-]*)")
_LINK: Final = re.compile(r"\[([^\[\]\n]*)\]\(\s*<?([^\s<>()]*)>?(?:\s+(?:\"[^\"\n]*\"|'[^'\n]*'))?\s*\)")
_CODE: Final = re.compile(r"(`+)([^`\n]+)\1(?!`)")
_BARE_LINK: Final = re.compile(r"(?i)(?:http|ftp|mailto|file|command|vscode[\w-]*|javascript|data):|www\.")
_HTTPS: Final = re.compile(r"https://[A-Za-z0-9.-]+(?::\d+)?(?:[/?#][^\s<>()\[\]`\"\\]*)?")
_PUNCTUATION: Final = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")

LinkCheck = Callable[[str], bool]


def plain_text(text: str) -> str:
    """One line of plain text, for titles and messages; link syntax that some editors honour is broken up."""
    line = " ".join(visible(text).split())
    return line.replace("](", "] (")


def visible(text: str) -> str:
    """The text with controls, direction overrides, tags and other hidden characters as `\\u....` escapes."""
    return _SUSPICIOUS.sub(_escape, text.replace("\r\n", "\n"))


def safe_markdown(text: str, is_own_file: LinkCheck | None = None) -> str:
    """Markdown that is only text, emphasis, lists, code and permitted links.

    `is_own_file` says of a link's target whether it is a file of the workspace.
    """
    pieces: list[str] = []
    lines = iter(visible(text).split("\n"))
    for line in lines:
        fence = _FENCE.match(line)
        if fence is None:
            pieces.append(_safe_line(line, is_own_file))
        else:
            pieces.extend(_fenced(fence[1], fence[2], lines))
    return "\n".join(pieces)


def code_block(text: str, language: str = "") -> str:
    """A fenced block that its content cannot end."""
    content = visible(text)
    longest = max((len(run) for run in re.findall("`+", content)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{content}\n{fence}"


def _escape(match: re.Match[str]) -> str:
    point = ord(match[0])
    return f"\\u{point:04x}" if point < 0x10000 else f"\\U{point:08x}"


def _fenced(opening: str, language: str, lines: Iterator[str]) -> Iterator[str]:
    closing = re.compile(rf" {{0,3}}{re.escape(opening[0])}{{{len(opening)},}}\s*")
    content: list[str] = []
    for line in lines:
        if closing.fullmatch(line):
            break
        content.append(line)
    yield code_block("\n".join(content), language)


def _safe_line(line: str, is_own_file: LinkCheck | None) -> str:
    pieces: list[str] = []
    index = 0
    while index < len(line):
        character = line[index]
        if character == "\\" and line[index + 1 : index + 2] in _PUNCTUATION:
            pieces.append(_literal(line[index + 1]))
            index += 2
            continue
        found = _construct(line, index, is_own_file)
        if found is not None:
            text, index = found
            pieces.append(text)
            continue
        pieces.append(_neutral(line, index))
        index += 1
    return "".join(pieces)


def _construct(line: str, index: int, is_own_file: LinkCheck | None) -> tuple[str, int] | None:
    """A harmless construct that begins here, as (what to write, where it ends)."""
    character = line[index]
    if character == "`":
        code = _CODE.match(line, index)
        # A bar inside code may be the border of a table's cell, which would cut the code in two.
        if code is not None and "|" not in code[2]:
            return code[0], code.end()
        run = len(line[index:]) - len(line[index:].lstrip("`"))
        return "\\`" * run, index + run
    if character == "[":
        link = _LINK.match(line, index)
        if link is not None:
            label = "".join(_literal(part) for part in link[1])
            target = link[2]
            if _HTTPS.fullmatch(target) or (is_own_file is not None and is_own_file(target)):
                return f"[{label}]({target})", link.end()
            shown = "".join(_literal(part) for part in target)
            return (f"{label} ({shown})" if shown else label), link.end()
    if character in "hfmcvjdwHFMCVJDW" and (index == 0 or not line[index - 1].isalnum()):
        https = _HTTPS.match(line, index)
        if https is not None:
            return https[0].replace("&", "&amp;").replace("_", "\\_").replace("*", "\\*"), https.end()
        bare = _BARE_LINK.match(line, index)
        if bare is not None:
            return f"{bare[0][:-1]}\\{bare[0][-1]}", bare.end()
    return None


def _neutral(line: str, index: int) -> str:
    """A character that begins nothing harmless: kept when Markdown may use it for emphasis, lists and headings."""
    character = line[index]
    if character in "<&[]`":
        return _literal(character)
    if character == "@" and index and line[index - 1].isalnum():
        return "\\@"
    return character


def _literal(character: str) -> str:
    if character == "<":
        return "&lt;"
    if character == "&":
        return "&amp;"
    return f"\\{character}" if character in _PUNCTUATION else character
