"""What the commands take and answer that show what a run changed, apply it or drop it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from outpost_lsp.domain.record import Record
from outpost_lsp.protocol.commands.arguments import Params, Text


class ApplyParams(Params):
    """What of a run's changes to apply; all of it by default."""

    run_id: Text
    paths: list[Text] | None = Field(default=None, description="as in `outpost.diff`; names, never patterns")
    hunks: list[Text] | None = Field(default=None, description="ids from `outpost.diff`")


class Hunk(Record):
    """A part of a file's changes that can be applied alone."""

    id: str
    header: str


class ChangedFile(Record):
    """A file that the agent changed. `before` and `after` are absent for binary files."""

    path: str
    uri: str
    status: Literal["added", "modified", "deleted", "renamed"]
    old_uri: str | None = None
    before: str | None = None
    after: str | None = None
    hunks: list[Hunk]


class DiffResult(Record):
    """What a run changed."""

    files: list[ChangedFile]
    patch: str
    opened: bool | None = Field(default=None, description="whether the editor shows the patch, when that was asked")


class Conflict(Record):
    """A file that could not be merged."""

    path: str
    reason: str


class ApplyResult(Record):
    """What became of the changes. `needsOwnAccept`: files that make programs act; name them to apply them."""

    applied: bool
    files: list[str]
    conflicts: list[Conflict]
    needs_own_accept: list[str]


class DiscardResult(Record):
    """Whether there was anything to discard."""

    discarded: bool
