"""Finds brackets that do not match in languages of the C family, where a base shows that they did.

A small reader passes over strings and comments. It knows no language well, so what it finds counts only against a base
that it found in order (`only_new`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from outpost_lsp.models.rule_based.analysis import RawFinding, SourceText
from outpost_lsp.reviews.rules.placed import UNPARSABLE, Placed, quoted
from outpost_lsp.reviews.rules.table import CONFIDENCE

_LINE_COMMENT: Final = r"//[^\n]*"
_BLOCK_COMMENT: Final = r"/\*.*?(?:\*/|\Z)"
_DOUBLE: Final = r'"(?:\\.|[^"\\\n])*"?'
_SINGLE: Final = r"'(?:\\.|[^'\\\n])*'?"
_CHARACTER: Final = r"'(?:\\[^\n']{1,10}|[^'\\\n])'"
_TEMPLATE: Final = r"`(?:\\.|[^`\\])*`?"
_TRIPLE: Final = r'"""(?:\\.|.)*?"""'
_EXPRESSION: Final = r"(?:(?<=[(,=:\[!&|?{};\n+\-*%<>~^])|(?<=return)|(?<=typeof))\s*/(?![/*\s])(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\[\n])+/[a-z]*"
_RAW_RUST: Final = r'r(#*)".*?"\1'
_HASH_COMMENT: Final = r"#[^\n]*"

_SCRIPT: Final = (_LINE_COMMENT, _BLOCK_COMMENT, _EXPRESSION, _DOUBLE, _SINGLE, _TEMPLATE)
_C_FAMILY: Final = (_LINE_COMMENT, _BLOCK_COMMENT, _TRIPLE, _DOUBLE, _CHARACTER)
_GO: Final = (_LINE_COMMENT, _BLOCK_COMMENT, _DOUBLE, _CHARACTER, r"`[^`]*`?")
_RUST: Final = (_LINE_COMMENT, _BLOCK_COMMENT, _RAW_RUST, r'"(?:\\.|[^"\\])*"?', _CHARACTER)
_STYLE: Final = (_BLOCK_COMMENT, _DOUBLE, _SINGLE)
_PHP: Final = (_LINE_COMMENT, _BLOCK_COMMENT, _HASH_COMMENT, r'"(?:\\.|[^"\\])*"?', r"'(?:\\.|[^'\\])*'?")

_PASSED_OVER: Final[Mapping[str, re.Pattern[str]]] = {
    suffix: re.compile("|".join((*parts, r"[(){}\[\]]")), re.DOTALL)
    for suffixes, parts in (
        (("js", "mjs", "cjs", "ts", "mts", "cts"), _SCRIPT),
        (("c", "h", "cc", "cpp", "cxx", "hpp", "hh", "java", "cs", "kt", "kts", "scala", "swift", "dart"), _C_FAMILY),
        (("go",), _GO),
        (("rs",), _RUST),
        (("css", "scss", "less"), _STYLE),
        (("php",), _PHP),
    )
    for suffix in suffixes
}
_CLOSES: Final = {")": "(", "]": "[", "}": "{"}
_MOST_CHARACTERS: Final = 1_000_000


def unmatched_brackets(source: SourceText) -> list[Placed]:
    """At most one finding: the first bracket that does not fit, or the last one that stays open."""
    pattern = _PASSED_OVER.get(source.path.rsplit(".", 1)[-1].lower())
    if pattern is None or len(source.text) > _MOST_CHARACTERS:
        return []
    opened: list[tuple[str, int]] = []
    for match in pattern.finditer(source.text):
        sign = match[0]
        if len(sign) != 1 or sign not in "(){}[]":
            continue
        if sign in _CLOSES:
            if not opened or opened[-1][0] != _CLOSES[sign]:
                return [_placed(source, match.start(), sign)]
            opened.pop()
        else:
            opened.append((sign, match.start()))
    return [_placed(source, opened[-1][1], opened[-1][0])] if opened else []


def _placed(source: SourceText, offset: int, sign: str) -> Placed:
    line = source.text.count("\n", 0, offset) + 1
    row, quote = quoted(source.text.split("\n"), line, line)
    column = offset - source.text.rfind("\n", 0, offset)
    words = "nothing opens it" if sign in _CLOSES else "nothing closes it"
    finding = RawFinding(
        rule=UNPARSABLE,
        code="does-not-parse",
        severity="error",
        title=f"Nothing in this file compiles: `{sign}` does not match, {words}",
        detail="The brackets of the base of this change match. Found by counting brackets outside strings and comments.",
        line=row,
        quote=quote,
        confidence=CONFIDENCE["error"],
        only_new=True,
        whole_file=True,
        hides_others=True,
    )
    return Placed(finding, (row, column), (row, column + 1))
