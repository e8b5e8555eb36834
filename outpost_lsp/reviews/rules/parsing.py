"""Finds JSON and TOML that does not parse, and keys that stand twice. Python that does not parse is found by ruff."""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import replace
from typing import Any, Final

from outpost_lsp.domain.wording import ended
from outpost_lsp.models.rule_based.analysis import RawFinding, SourceText
from outpost_lsp.reviews.rules.placed import UNPARSABLE, Placed, quoted
from outpost_lsp.reviews.rules.table import CONFIDENCE

_TEMPLATE: Final = re.compile(r"\{\{|\{%|<%|\$\{|@@[A-Z_]+@@")
_WITH_COMMENTS: Final = re.compile(
    r"(^|/)(tsconfig[^/]*|jsconfig[^/]*|\.eslintrc|\.babelrc|\.swcrc|\.jshintrc|tslint|devcontainer|api-extractor"
    r"|settings|launch|tasks|extensions|keybindings|renovate|\.?oxlintrc|deno|biome|turbo|wrangler)\.json5?c?\Z"
    r"|(^|/)\.(vscode|devcontainer|zed)/|\.(jsonc|json5|code-workspace|sublime-[a-z]+)\Z",
    re.IGNORECASE,
)
_JSON: Final = (".json", ".webmanifest", ".geojson", ".ipynb", ".avsc")
_COMMENT: Final = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_TRAILING_COMMA: Final = re.compile(r'("(?:\\.|[^"\\\n])*")|,(?=\s*[\]}])')
_TOML_PLACE: Final = re.compile(r"\(at line (\d+), column (\d+)\)")


class _RepeatedKeyError(Exception):
    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


def data_that_does_not_parse(source: SourceText) -> list[Placed]:
    """At most one finding: where the parser stopped."""
    path = source.path.lower()
    if not source.text.strip() or _TEMPLATE.search(source.text):
        return []
    if path.endswith(".toml") or path.rsplit("/", 1)[-1] in ("pipfile", "poetry.lock", "uv.lock", "cargo.lock"):
        return _toml(source)
    if path.endswith(_JSON) and not _WITH_COMMENTS.search(source.path):
        return _json(source)
    return []


def _toml(source: SourceText) -> list[Placed]:
    try:
        tomllib.loads(source.text)
    except tomllib.TOMLDecodeError as error:
        match = _TOML_PLACE.search(str(error))
        line = int(match[1]) if match else source.text.count("\n") + 1
        message = _TOML_PLACE.sub("", str(error)).strip()
        return [_placed(source, line, "TOML", message, only_new=False)]
    except RecursionError:
        return []
    return []


def _json(source: SourceText) -> list[Placed]:
    text = source.text.removeprefix("\ufeff")
    try:
        json.loads(text, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        # Comments, trailing commas and one value per line are dialects: worth a word only where they are new.
        return [_json_fault(source, text, error)]
    except _RepeatedKeyError as error:
        return _repeated(source, error.key)
    except (RecursionError, ValueError):
        return []
    return []


def _json_fault(source: SourceText, text: str, error: json.JSONDecodeError) -> Placed:
    before = text[: error.pos].rstrip()
    line = before.count("\n") + 1
    only_new = _is_dialect(text)
    if not before.endswith(","):
        # A comma or a bracket that is missing at the end of a line is noticed in the next one.
        missing = error.msg.startswith("Expecting ',' delimiter")
        return _placed(source, line if missing else error.lineno, "JSON", error.msg, only_new=only_new)
    found = _placed(source, line, "JSON", "A comma stands before the closing bracket", only_new=only_new)
    fixed = _TRAILING_COMMA.sub(lambda match: match[1] or "", text)
    quote = found.finding.quote
    if quote.rstrip().endswith(",") and _parses(fixed):
        return replace(found, finding=replace(found.finding, replacement=quote.rstrip()[:-1]))
    return found


def _parses(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise _RepeatedKeyError(key)
        found[key] = value
    return found


def _is_dialect(text: str) -> bool:
    bare = _COMMENT.sub(lambda match: match[0] if match[0].startswith('"') else "", text)
    bare = _TRAILING_COMMA.sub(lambda match: match[1] or "", bare)
    return _parses(bare) or all(_parses(line) for line in text.splitlines() if line.strip())


def _repeated(source: SourceText, key: str) -> list[Placed]:
    lines = source.text.split("\n")
    wanted = re.compile(rf"{re.escape(json.dumps(key, ensure_ascii=False))}\s*:")
    rows = [row for row, line in enumerate(lines, 1) if wanted.search(line)]
    if not rows:
        return []
    row, quote = quoted(lines, rows[-1], rows[-1])
    finding = RawFinding(
        rule="repeated-json-key",
        code="repeated-key",
        severity="warning",
        title=f"The earlier value is lost: the key `{key[:60]}` stands twice in one object",
        detail="JSON readers keep the last of equal keys. Found by parsing the file.",
        line=row,
        quote=quote,
        key=key,
        confidence=CONFIDENCE["warning"],
        whole_file=True,
    )
    return [Placed(finding, (row, 1), (row, len(quote) + 1))]


def _placed(source: SourceText, line: int, language: str, message: str, *, only_new: bool) -> Placed:
    row, quote = quoted(source.text.split("\n"), line, line)
    finding = RawFinding(
        rule=UNPARSABLE,
        code="does-not-parse",
        severity="error",
        title=f"Nothing can read this file: it is no valid {language}",
        detail=f"{ended(message)} Found by parsing the file.",
        line=row,
        quote=quote,
        confidence=CONFIDENCE["error"],
        only_new=only_new,
        whole_file=True,
        hides_others=True,
    )
    return Placed(finding, (row, 1), (row, len(quote) + 1))
