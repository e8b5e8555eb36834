"""Finds merges that were not resolved: git's conflict markers, in any language."""

from __future__ import annotations

import re
from typing import Final

from outpost_lsp.models.rule_based.analysis import RawFinding, SourceText
from outpost_lsp.reviews.rules.placed import CONFLICT, Placed
from outpost_lsp.reviews.rules.table import CONFIDENCE

_MARKER: Final = re.compile(r"^(<{7}|={7}|>{7}|\|{7})(?= |\r?$)(.*)$", re.MULTILINE)
_PROSE: Final = (".md", ".markdown", ".rst", ".txt", ".adoc", ".asciidoc", ".org")
_FENCE: Final = re.compile(r"^(```|~~~)", re.MULTILINE)


def conflict_markers(source: SourceText) -> list[Placed]:
    """One finding per unresolved place. In prose, where lines of `=` underline titles, only whole ones count."""
    if "<<<<<<<" not in source.text and ">>>>>>>" not in source.text:
        return []
    is_prose = source.path.lower().endswith(_PROSE)
    found: list[Placed] = []
    opened: re.Match[str] | None = None
    parted = False
    for marker in _MARKER.finditer(source.text):
        sign = marker[1][0]
        if sign == "<":
            if opened is not None and not is_prose:
                found.append(_placed(source, opened))
            opened, parted = marker, False
        elif sign == "=":
            parted = opened is not None
        elif sign == ">":
            if opened is not None and (parted or not is_prose):
                if not (is_prose and _in_fence(source.text, opened.start())):
                    found.append(_placed(source, opened))
            elif not is_prose and marker[2].strip():
                found.append(_placed(source, marker))
            opened = None
    if opened is not None and not is_prose and opened[2].strip():
        found.append(_placed(source, opened))
    return found


def _in_fence(text: str, offset: int) -> bool:
    return len(_FENCE.findall(text, 0, offset)) % 2 == 1


def _placed(source: SourceText, marker: re.Match[str]) -> Placed:
    line = source.text.count("\n", 0, marker.start()) + 1
    quote = marker[0].rstrip("\r")
    finding = RawFinding(
        rule=CONFLICT,
        code="merge-conflict-marker",
        severity="error",
        title="The merge is not resolved: a conflict marker stands in the file",
        detail="Both versions and git's markers are in the text. Keep what is meant and remove the marker lines.",
        line=line,
        quote=quote,
        confidence=CONFIDENCE["error"],
        hides_others=True,
    )
    return Placed(finding, (line, 1), (line, len(quote) + 1))
