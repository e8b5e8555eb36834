"""A few slips that can be told from one line, in languages of the C family and in shell scripts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from outpost_lsp.domain.finding import Severity
from outpost_lsp.models.rule_based.analysis import RawFinding, SourceText
from outpost_lsp.reviews.rules.placed import Placed
from outpost_lsp.reviews.rules.table import CONFIDENCE

_SCRIPTS: Final = frozenset(("js", "jsx", "mjs", "cjs", "ts", "tsx", "mts", "cts", "vue", "svelte"))
_BRACES: Final = _SCRIPTS | {"java", "c", "h", "cc", "cpp", "cxx", "hpp", "cs", "php", "dart"}
_LONGEST_LINE: Final = 1_000


@dataclass(frozen=True, slots=True)
class _Slip:
    code: str
    severity: Severity
    suffixes: frozenset[str]
    hint: str
    pattern: re.Pattern[str]
    title: str
    detail: str
    only_new: bool = False


_OPERAND: Final = r"[A-Za-z_$][\w$]*(?:(?:\.|->)[A-Za-z_$][\w$]*|\[[\w$]+\])*"
_SLIPS: Final = (
    _Slip(
        "assignment-as-condition",
        "error",
        _BRACES - {"kt"},
        "if",
        re.compile(rf"\b(?:if|while)\s*\(\s*{_OPERAND}\s*=\s*(?:-?\d[\w.]*|\"[^\"]*\"|'[^']*'|true|false|null|nullptr|NULL)\s*\)"),
        "The condition never varies and the value is overwritten: `=` assigns",
        "A comparison needs `==` or `===`.",
    ),
    _Slip(
        "empty-statement",
        "error",
        _BRACES,
        "if",
        re.compile(r"^\s*(?:\}\s*else\s+)?if\s*\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)\s*;\s*(?://.*)?$"),
        "The condition decides nothing: a semicolon ends the `if`",
        "What follows runs in any case.",
    ),
    _Slip(
        "self-comparison",
        "error",
        _BRACES | {"go", "rs", "swift", "kt", "scala"},
        "==",
        re.compile(
            rf"(?:^|[(!,?{{;]|&&|\|\||=>|[^=!<>]=|\breturn\b)\s*({_OPERAND})\s*={{2,3}}\s*\1\s*(?=[)&|;,?}}]|:(?!:)|$)"
        ),
        "The condition is always true: the value is compared with itself",
        "One of the sides was probably meant to be another value.",
    ),
    _Slip(
        "compare-with-nan",
        "error",
        _SCRIPTS,
        "NaN",
        re.compile(r"[!=]==?\s*(?:Number\.)?NaN\b|\b(?:Number\.)?NaN\s*[!=]==?"),
        "The condition never varies: nothing equals NaN",
        "Number.isNaN() tells it.",
    ),
    _Slip(
        "typeof-compared-wrongly",
        "error",
        _SCRIPTS,
        "typeof",
        re.compile(
            r"\btypeof\s+[\w$.]+\s*[!=]==?\s*(?:undefined|null)\b"
            r"|\btypeof\s+[\w$.]+\s*[!=]==?\s*([\"'])(?!(?:undefined|object|boolean|number|bigint|string|symbol|function)\1)[^\"'\n]*\1"
        ),
        "The condition never varies: `typeof` gives one of eight texts, and this is none",
        "The right side must be a text such as 'undefined' or 'string'.",
    ),
    _Slip(
        "text-compared-by-identity",
        "warning",
        frozenset(("java",)),
        '"',
        re.compile(r"[!=]=\s*\"(?:\\.|[^\"\\])*\"|\"(?:\\.|[^\"\\])*\"\s*[!=]="),
        "Equal texts may count as different: `==` compares objects in Java",
        "equals() compares the texts.",
    ),
    _Slip(
        "backwards-operator",
        "error",
        _BRACES | {"py", "go", "rs", "kt", "swift", "rb"},
        "=",
        re.compile(r"^\s*[A-Za-z_$][\w$.\[\]]*\s=[+](?:\s)\s*[\w$(]"),
        "The old value is lost: `=+` assigns, it does not add",
        "Adding is written `+=`.",
    ),
    _Slip(
        "removes-from-the-top",
        "warning",
        frozenset(("sh", "bash", "zsh", "ksh")),
        "rm ",
        re.compile(r"\brm\s+(?:-[a-zA-Z]+\s+)*-[a-zA-Z]*r[a-zA-Z]*\s+(?:-\S+\s+)*\"?\$\{?[A-Za-z_]\w*\}?\"?/(?:\*|\s|$)"),
        "Everything from the top is deleted when the variable is empty",
        "`${NAME:?}` stops the script in place of that.",
    ),
)  # fmt: skip
_STARTS_COMMENT: Final[Mapping[str, str]] = {"py": "#", "sh": "#", "bash": "#", "zsh": "#", "ksh": "#", "rb": "#"}


def slips_of_other_languages(source: SourceText) -> list[Placed]:
    """What can be told from a line."""
    suffix = source.path.rsplit(".", 1)[-1].lower()
    slips = [slip for slip in _SLIPS if suffix in slip.suffixes and slip.hint in source.text]
    if not slips:
        return []
    found = []
    comment = _STARTS_COMMENT.get(suffix, "//")
    for number, line in enumerate(source.text.split("\n"), 1):
        stripped = line.lstrip()
        if len(line) > _LONGEST_LINE or stripped.startswith((comment, "*", "/*")):
            continue
        for slip in slips:
            match = slip.pattern.search(line) if slip.hint in line else None
            if match is not None and not _in_text(line, match.start()):
                found.append(_placed(slip, number, line, match))
                break
    return found


def _in_text(line: str, offset: int) -> bool:
    """Whether an odd number of quotation marks stands before the place."""
    before = re.sub(r"\\.", "", line[:offset])
    return any(before.count(mark) % 2 for mark in "\"'`") or "//" in before.replace("://", "")


def _placed(slip: _Slip, number: int, line: str, match: re.Match[str]) -> Placed:
    quote = line.rstrip("\r")
    finding = RawFinding(
        rule=slip.code,
        code=slip.code,
        severity=slip.severity,
        title=slip.title,
        detail=f"{slip.detail} Found by a fixed rule.",
        line=number,
        quote=quote,
        key=match[0].strip()[:80],
        confidence=CONFIDENCE[slip.severity],
        only_new=slip.only_new,
    )
    return Placed(finding, (number, match.start() + 1), (number, match.end() + 1))
