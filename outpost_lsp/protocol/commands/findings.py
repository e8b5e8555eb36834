"""What the commands about findings take and answer."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field, field_validator

from outpost_lsp.domain.finding import FindingStatus
from outpost_lsp.domain.record import Record
from outpost_lsp.protocol.commands.arguments import Params, Text
from outpost_lsp.protocol.records import Finding


class FindingsParams(Params):
    """Which findings to list."""

    uri: str | None = None
    status: FindingStatus | None = None


class DismissParams(Params):
    """A finding not to show any more."""

    finding_id: Text
    reason: Text | None = None
    until: str | None = Field(default=None, description="RFC 3339: the finding may return after it")

    @field_validator("until")
    @classmethod
    def _is_a_time(cls, value: str | None) -> str | None:
        if value is not None:
            try:
                datetime.fromisoformat(value)
            except ValueError:
                raise ValueError("a date like 2030-01-31, or an RFC 3339 time, is expected") from None
        return value


class FindingParams(Params):
    """A finding."""

    finding_id: Text


class ClearParams(Params):
    """Whose findings to forget; those of every document when `uri` is absent."""

    uri: str | None = None


class FindingsResult(Record):
    """Findings at their current places."""

    findings: list[Finding]


class FindingResult(Record):
    """The finding as it is now."""

    finding: Finding


class ClearResult(Record):
    """How many findings were forgotten."""

    cleared: int
