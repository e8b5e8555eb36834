"""The machine-readable blocks of a brief: what to review, and which finding to fix.

A brief is prose for language models; rule-based parts read the fenced block in it. Whoever writes a brief for the
shipped agents uses the `*_block` functions here, so that both sides agree by construction.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from pydantic import ValidationError

from outpost_lsp.domain.finding import Span
from outpost_lsp.domain.run import CHANGE_SCOPES, ScopeKind

REVIEW_FENCE: Final = "outpost-review"
FIX_FENCE: Final = "outpost-fix"

ChangeStatus = Literal["added", "modified", "deleted", "renamed"]


@dataclass(frozen=True, slots=True)
class ScopeFile:
    """A file of the scope. `old_path` is where a renamed file stood before."""

    path: str
    status: ChangeStatus = "modified"
    old_path: str | None = None

    @property
    def base_path(self) -> str | None:
        """Where the base side stands; `None` when the base has none."""
        return None if self.status == "added" else self.old_path or self.path


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a review is to look at. `base` is empty where there is nothing to compare with.

    `is_patch`: the commit was made of a patch that somebody gave, and is none of the repository's history.
    """

    scope: str
    base: str = ""
    snapshot: str = ""
    paths: tuple[str, ...] = ()
    files: tuple[ScopeFile, ...] = ()
    span: Span | None = None
    omitted: int = 0
    is_patch: bool = False

    @property
    def is_change(self) -> bool:
        """Whether only what changed is the subject."""
        return self.scope in CHANGE_SCOPES


@dataclass(frozen=True, slots=True)
class FixOrder:
    """The finding a fixer is asked to settle: what to put in place of which text, when the finding says so."""

    path: str
    line: int
    quote: str
    title: str
    replacement: str | None


def review_block(assignment: Assignment) -> str:
    """The fenced block of an assignment, its JSON on one line."""
    value: dict[str, Any] = {
        "scope": assignment.scope,
        "base": assignment.base,
        "snapshot": assignment.snapshot,
        "paths": list(assignment.paths),
        "files": [_file_json(file) for file in assignment.files],
    }
    if assignment.span is not None:
        value["span"] = assignment.span.to_json()
    if assignment.omitted:
        value["omitted"] = assignment.omitted
    if assignment.is_patch:
        value["patch"] = True
    return f"```{REVIEW_FENCE}\n{json.dumps(value, ensure_ascii=False)}\n```"


def review_assignment(text: str) -> Assignment | None:
    """The assignment of the last block that is one; `None` when the text holds none."""
    for value in reversed(_blocks(text, REVIEW_FENCE)):
        if (found := _assignment(value)) is not None:
            return found
    return None


def fix_block(order: FixOrder) -> str:
    """The fenced block of a fix order, its JSON on one line."""
    value: dict[str, Any] = {"path": order.path, "line": order.line, "quote": order.quote, "title": order.title}
    if order.replacement is not None:
        value["replacement"] = order.replacement
    return f"```{FIX_FENCE}\n{json.dumps(value, ensure_ascii=False)}\n```"


def fix_order(text: str) -> FixOrder | None:
    """The fix order of the last block that is one; `None` when the text holds none."""
    for value in reversed(_blocks(text, FIX_FENCE)):
        path, quote, line = value.get("path"), value.get("quote"), value.get("line")
        replacement = value.get("replacement")
        if isinstance(path, str) and path and isinstance(quote, str) and quote and isinstance(line, int):
            title = value.get("title")
            return FixOrder(
                path,
                line,
                quote,
                title if isinstance(title, str) else "",
                replacement if isinstance(replacement, str) else None,
            )
    return None


def _blocks(text: str, fence: str) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = []
    for match in re.finditer(rf"^```{re.escape(fence)}[ \t]*\r?\n(.*?)\r?\n```[ \t]*$", text, re.MULTILINE | re.DOTALL):
        try:
            value = json.loads(match.group(1))
        except ValueError:
            continue
        if isinstance(value, dict):
            found.append(value)
    return found


def _assignment(value: Mapping[str, Any]) -> Assignment | None:
    scope = value.get("scope")
    if scope not in get_args(ScopeKind):
        return None
    omitted = value.get("omitted")
    return Assignment(
        scope=str(scope),
        base=_revision(value.get("base")),
        snapshot=_revision(value.get("snapshot")),
        paths=tuple(path for path in _list(value.get("paths")) if isinstance(path, str) and path),
        files=tuple(file for item in _list(value.get("files")) if (file := _file(item)) is not None),
        span=_span(value.get("span")),
        omitted=omitted if isinstance(omitted, int) and omitted > 0 else 0,
        is_patch=value.get("patch") is True,
    )


def _file(item: Any) -> ScopeFile | None:
    if not isinstance(item, dict) or not isinstance(item.get("path"), str) or not item["path"]:
        return None
    status: ChangeStatus = item["status"] if item.get("status") in get_args(ChangeStatus) else "modified"
    old_path = item.get("oldPath")
    return ScopeFile(
        item["path"],
        status,
        old_path if isinstance(old_path, str) and old_path else None,
    )


def _file_json(file: ScopeFile) -> dict[str, str]:
    value = {"path": file.path, "status": file.status}
    if file.old_path is not None:
        value["oldPath"] = file.old_path
    return value


def _span(value: Any) -> Span | None:
    if value is None:
        return None
    try:
        return Span.model_validate(value)
    except ValidationError:
        return None


def _revision(value: Any) -> str:
    # Object names, and the two that stand for a snapshot and its parent; nothing that could be an option or a range.
    return value if isinstance(value, str) and re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}|HEAD\^?", value) else ""


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()
