"""Ids: made here, or checked here before a path is built from one that came from outside (CONV-01)."""

from __future__ import annotations

import re
import secrets
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Final

from outpost_lsp.errors import OutpostError

_SAFE: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_last_lock = threading.Lock()
_last_microsecond = 0


def new_run_id() -> str:
    """A unique id that sorts by the time it was made, also when the clock is set back while this process runs."""
    global _last_microsecond  # noqa: PLW0603 - the order within one process needs the last value
    with _last_lock:
        _last_microsecond = max(time.time_ns() // 1_000, _last_microsecond + 1)
        moment = _EPOCH + timedelta(microseconds=_last_microsecond)
    return f"{moment:%Y%m%d-%H%M%S-%f}-{secrets.token_hex(3)}"


def made_at(run_id: str) -> datetime | None:
    """When a run's id was made; `None` when it is no id of ours."""
    try:
        return datetime.strptime(run_id[:22], "%Y%m%d-%H%M%S-%f").replace(tzinfo=UTC)
    except ValueError:
        return None


def is_safe_id(text: object) -> bool:
    """Whether a file may be named by it: letters, digits, `_`, `-`, and dots that are not in front."""
    return isinstance(text, str) and _SAFE.fullmatch(text) is not None


def check_id(text: str, what: str) -> str:
    """The id itself, or a `configuration` fault that says what was expected."""
    if not is_safe_id(text):
        raise OutpostError(
            "configuration",
            f"{what}: {str(text)[:80]!r} is no id (letters, digits, '.', '_' and '-', at most 128 characters)",
        )
    return text


def now_text(moment: datetime | None = None) -> str:
    """A time as RFC 3339 text in UTC with milliseconds; the present when none is given."""
    moment = datetime.now(UTC) if moment is None else moment.astimezone(UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"
