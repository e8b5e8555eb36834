"""Findings as JSON, encoded once: a publish of many of them writes anew only where each stands.

What stays the same of a finding is kept as text as long as it is published, so that a keystroke above a thousand
findings costs a thousand short strings and not a thousand objects.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from outpost_lsp.domain.finding import Finding, Severity
from outpost_lsp.domain.markdown import one_line
from outpost_lsp.protocol.names import Encoding
from outpost_lsp.protocol.positions import range_json
from outpost_lsp.protocol.records import finding_json

if TYPE_CHECKING:
    from outpost_lsp.service.view import Standing

_SEVERITY: Final[dict[Severity, int]] = {"error": 1, "warning": 2, "information": 3, "hint": 4}
_STALE: Final = "the code was edited since"
_ENDED: Final = "its dismissal has ended"
_encode: Final = json.JSONEncoder(separators=(",", ":")).encode
_RANGE: Final = '{"range":{"start":{"line":%d,"character":%d},"end":{"line":%d,"character":%d}},%s'


class EncodedFile:
    """The findings of one file as they were encoded last."""

    def __init__(self) -> None:
        self._diagnostics: dict[str, tuple[Finding, str]] = {}
        self._records: dict[str, tuple[Finding, str]] = {}

    def diagnostics(self, standing: Iterable[Standing], lines: Sequence[str], encoding: Encoding) -> str:
        """The diagnostics, as a JSON list."""
        known, kept, parts = self._diagnostics, {}, []
        for one in standing:
            finding = one[0]
            entry = known.get(finding.id)
            if entry is None or entry[0] is not finding:
                entry = finding, _tail(diagnostic(finding, {}), "range")
            kept[finding.id] = entry
            parts.append(_RANGE % (*_place(one, lines, encoding), entry[1]))
        self._diagnostics = kept
        return f"[{','.join(parts)}]"

    def records(
        self,
        standing: Iterable[Standing],
        uri: str,
        lines: Sequence[str],
        encoding: Encoding,
        shown: Callable[[Finding], Finding],
    ) -> str:
        """The findings in full, as a JSON list. `shown` gives one whose suggestion has to stand where it stands now."""
        known, kept, parts = self._records, {}, []
        head = dumped(uri)
        for one in standing:
            finding = one[0]
            if finding.suggestion is not None:
                parts.append(dumped(finding_json(shown(finding), uri, lines, encoding)))
                continue
            entry = known.get(finding.id)
            if entry is None or entry[0] is not finding:
                body = finding_json(finding, uri, lines, encoding)
                del body["uri"]
                entry = finding, _tail(body, "range")
            kept[finding.id] = entry
            parts.append(_RANGE % (*_place(one, lines, encoding), f'"uri":{head},{entry[1]}'))
        self._records = kept
        return f"[{','.join(parts)}]"


def diagnostic(finding: Finding, place: dict[str, Any]) -> dict[str, Any]:
    """A finding as an LSP diagnostic at this range."""
    is_stale = finding.status == "stale"
    message = one_line(finding.title)
    data: dict[str, Any] = {"findingId": finding.id, "runId": finding.run_id}
    if is_stale:
        data["stale"] = True
        message = f"{message} ({_STALE})"
    elif finding.dismissal is not None:
        message = f"{message} ({_ENDED})"
    return {
        "range": place,
        "severity": 4 if is_stale else _SEVERITY[finding.severity],
        "code": finding.code,
        "source": "outpost",
        "message": message,
        "data": data,
    }


def dumped(value: Any) -> str:
    """Compact JSON in ASCII."""
    return _encode(value)


def _tail(body: dict[str, Any], without: str) -> str:
    """The JSON of an object without one of its fields and without its opening brace."""
    return dumped({name: value for name, value in body.items() if name != without})[1:]


def _place(one: Standing, lines: Sequence[str], encoding: Encoding) -> tuple[int, int, int, int]:
    _, first, start, last, end = one
    if first and last < len(lines) and (encoding == "utf-32" or (lines[first].isascii() and lines[last].isascii())):
        return first, start, last, end
    place = range_json(lines, one, encoding)
    begin, finish = place["start"], place["end"]
    return begin["line"], begin["character"], finish["line"], finish["character"]
