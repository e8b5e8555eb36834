"""Finds statements that stop a program for a debugger, and tests that leave the others out. Python's are ruff's T100."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from outpost_lsp.models.rule_based.analysis import RawFinding, SourceText
from outpost_lsp.reviews.rules.placed import Placed
from outpost_lsp.reviews.rules.table import CONFIDENCE

_SCRIPT: Final = re.compile(r"^[ \t]*debugger[ \t]*;?[ \t]*(?://.*)?\r?$", re.MULTILINE)
_RUBY: Final = re.compile(r"^[ \t]*(?:binding\.(?:pry|irb|break|b)|byebug|debugger)[ \t]*(?:#.*)?\r?$", re.MULTILINE)
_PHP: Final = re.compile(r"^[ \t]*xdebug_break\(\)[ \t]*;", re.MULTILINE)
_ELIXIR: Final = re.compile(r"^[ \t]*(?:require IEx;[ \t]*)?IEx\.pry(?:\(\))?[ \t]*\r?$", re.MULTILINE)
_RUST: Final = re.compile(r"^[ \t]*(?:let [^=\n]+=[ \t]*)?dbg!\(", re.MULTILINE)
_CSHARP: Final = re.compile(r"^[ \t]*(?:System\.Diagnostics\.)?Debugger\.(?:Break|Launch)\(\)[ \t]*;", re.MULTILINE)
_GO: Final = re.compile(r"^[ \t]*runtime\.Breakpoint\(\)", re.MULTILINE)
_PERL: Final = re.compile(r"^[ \t]*\$DB::single[ \t]*=[ \t]*[12]", re.MULTILINE)
_DART: Final = re.compile(r"^[ \t]*debugger\(\)[ \t]*;", re.MULTILINE)
_R: Final = re.compile(r"^[ \t]*browser\(\)[ \t]*\r?$", re.MULTILINE)
_LUA: Final = re.compile(r"""^[ \t]*require\(?[ \t]*["']mobdebug["'][ \t]*\)?\.start\(""", re.MULTILINE)

_BY_SUFFIX: Final[Mapping[str, re.Pattern[str]]] = {
    **dict.fromkeys(("js", "jsx", "mjs", "cjs", "ts", "tsx", "mts", "cts", "vue", "svelte", "html"), _SCRIPT),
    **dict.fromkeys(("rb", "rake", "erb", "gemspec"), _RUBY),
    "php": _PHP,
    **dict.fromkeys(("ex", "exs"), _ELIXIR),
    "rs": _RUST,
    "cs": _CSHARP,
    "go": _GO,
    **dict.fromkeys(("pl", "pm"), _PERL),
    "dart": _DART,
    "r": _R,
    "lua": _LUA,
}
_FOCUSED: Final = re.compile(r"^[ \t]*(?:describe|context|it|test|suite)\.only\(", re.MULTILINE)
_TEST_FILE: Final = re.compile(r"(?:[._-](?:test|spec|cy)\.|(?:^|/)(?:tests?|specs?|__tests__|cypress|e2e)/)")


def debugger_statements(source: SourceText) -> list[Placed]:
    """What was left in by whoever looked for a fault."""
    suffix = source.path.rsplit(".", 1)[-1].lower()
    pattern = _BY_SUFFIX.get(suffix)
    if pattern is None:
        return []
    found = [
        _placed(
            source,
            match,
            "debugger-statement",
            "The program stops here and waits: a debugger statement was left in",
            "Take the statement out before this is merged.",
        )
        for match in pattern.finditer(source.text)
    ]
    if pattern is _SCRIPT and _TEST_FILE.search(source.path):
        found += [
            _placed(
                source,
                match,
                "focused-test",
                "All other tests of this file are skipped: `.only` was left in",
                "A focused test passes while the rest do not run at all.",
            )
            for match in _FOCUSED.finditer(source.text)
        ]
    return found


def _placed(source: SourceText, match: re.Match[str], code: str, title: str, detail: str) -> Placed:
    start = match.start() + len(match[0]) - len(match[0].lstrip())
    line = source.text.count("\n", 0, start) + 1
    first = source.text.rfind("\n", 0, start) + 1
    last = source.text.find("\n", start)
    quote = source.text[first : last if last >= 0 else None].rstrip("\r")
    finding = RawFinding(
        rule=code,
        code=code,
        severity="error",
        title=title,
        detail=f"{detail} Found by a fixed rule.",
        line=line,
        quote=quote,
        confidence=CONFIDENCE["error"],
    )
    return Placed(finding, (line, start - first + 1), (line, len(quote) + 1))
