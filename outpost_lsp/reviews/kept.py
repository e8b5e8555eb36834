"""A prepared review as data, for whoever ends the review later and in another process.

The invariant: object ids and paths only, so that nothing that was committed meanwhile moves it; patterns and limits are
those of the settings in force when it is read again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from outpost_lsp.domain.run import ReviewScope
from outpost_lsp.errors import OutpostError
from outpost_lsp.models.rule_based.assignment import ScopeFile
from outpost_lsp.reviews.scope import PreparedReview, ReviewSettings, exclusion
from outpost_lsp.worktrees.snapshot import Snapshot

_SNAPSHOT: TypeAdapter[Snapshot] = TypeAdapter(Snapshot)
_FILES: TypeAdapter[tuple[ScopeFile, ...]] = TypeAdapter(tuple[ScopeFile, ...])
_CHANGED: TypeAdapter[dict[str, tuple[tuple[int, int], ...]] | None] = TypeAdapter(
    dict[str, tuple[tuple[int, int], ...]] | None
)


def kept_review(prepared: PreparedReview) -> dict[str, Any]:
    """What `review_from` needs, as JSON."""
    changed = prepared.changed
    return {
        "scope": prepared.scope.model_dump(mode="json", exclude_none=True),
        "snapshot": _SNAPSHOT.dump_python(prepared.snapshot, mode="json"),
        "base": prepared.base,
        "files": _FILES.dump_python(prepared.files, mode="json"),
        "changed": None
        if changed is None
        else {path: [[int(start), int(end)] for start, end in ranges] for path, ranges in changed.items()},
        "title": prepared.title,
        "brief": prepared.brief,
        "notes": list(prepared.notes),
    }


def review_from(kept: Mapping[str, Any], settings: ReviewSettings) -> PreparedReview:
    """The review that was kept. `configuration` for what is none."""
    try:
        scope = ReviewScope.model_validate(kept["scope"])
        changed = _CHANGED.validate_python(kept["changed"])
        return PreparedReview(
            scope=scope,
            settings=settings,
            snapshot=_SNAPSHOT.validate_python(kept["snapshot"]),
            base=str(kept["base"]),
            files=_FILES.validate_python(kept["files"]),
            changed=changed,
            title=str(kept["title"]),
            brief=str(kept["brief"]),
            notes=tuple(str(note) for note in kept["notes"]),
            excluded=exclusion(settings.exclude, scope.paths),
        )
    except (KeyError, TypeError, ValidationError) as error:
        raise OutpostError("configuration", f"what is kept of the review cannot be read: {error}") from error
