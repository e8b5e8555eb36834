"""How long to wait before a request is sent again, and what a service says about that.

Pure: it is told what the service sent and what time it is. `Retry-After` is a floor, never a ceiling (HTTP-04, HTTP-06,
REL-09).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from random import SystemRandom
from typing import Final

from outpost_lsp.errors import OutpostError

LONGEST_WAIT_S: Final = 60.0
_FIRST_BACKOFF_S = 0.5
_LARGEST_BACKOFF_S = 30.0
_LONGEST_READABLE_S = 10 * 365 * 86400

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTH = "(?P<month>" + "|".join(_MONTHS) + ")"
_TIME = r"(?P<hour>\d{2}):(?P<minute>\d{2}):(?P<second>\d{2})"
_SHORT_DAY = "(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
_LONG_DAY = "(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day"
_DATE_FORMS = (
    re.compile(rf"{_SHORT_DAY}, (?P<day>\d{{2}}) {_MONTH} (?P<year>\d{{4}}) {_TIME} GMT"),
    re.compile(rf"{_LONG_DAY}, (?P<day>\d{{2}})-{_MONTH}-(?P<year>\d{{2}}) {_TIME} GMT"),
    re.compile(rf"{_SHORT_DAY} {_MONTH} (?P<day>\d{{2}}| \d) {_TIME} (?P<year>\d{{4}})"),
)


class LastingError(OutpostError):
    """A fault that the same request would meet again, however often it is sent."""


Draw = Callable[[float, float], float]
"""Draws a number between two others."""

uniform: Final[Draw] = SystemRandom().uniform


def retry_after_s(header: str | None, now: datetime) -> float | None:
    """The seconds that a `Retry-After` asks for; `None` when it is absent or is in none of the four forms."""
    if header is None:
        return None
    header = header.strip()
    if header.isascii() and header.isdigit():
        return float(min(int(header[:12]), _LONGEST_READABLE_S))
    date = _http_date(header, now)
    return None if date is None else max(0.0, (date - now).total_seconds())


def reset_time(seconds: float, now: datetime) -> str:
    """The moment `seconds` from now in ISO 8601."""
    return (now + timedelta(seconds=seconds)).isoformat(timespec="seconds").replace("+00:00", "Z")


def wait_before_retry(fault: OutpostError, attempt: int, max_retries: int, draw: Draw = uniform) -> float | None:
    """The seconds to wait before retry number `attempt`, or `None` when the fault is final.

    Full jitter over an exponential back-off; what the service asked for is the least. More than a minute is not waited
    for: the fault says when to come back.
    """
    if attempt > max_retries or not is_passing(fault):
        return None
    asked = fault.details.get("retryAfterMs")
    floor = asked / 1000 if isinstance(asked, int) else 0.0
    if floor > LONGEST_WAIT_S:
        return None
    return max(floor, draw(0.0, min(_LARGEST_BACKOFF_S, _FIRST_BACKOFF_S * 2 ** (attempt - 1))))


def is_passing(fault: OutpostError) -> bool:
    """Whether the same request may succeed a moment later."""
    if isinstance(fault, LastingError):
        return False
    return fault.code == "quota" or (fault.code == "provider" and "unavailable" in fault.details)


def _http_date(text: str, now: datetime) -> datetime | None:
    for form in _DATE_FORMS:
        if found := form.fullmatch(text):
            break
    else:
        return None
    year = int(found["year"])
    if len(found["year"]) == 2:
        # Two digits mean the year of that ending which is at most 50 years ahead.
        year += now.year - now.year % 100
        if year > now.year + 50:
            year -= 100
    try:
        return datetime(
            year,
            _MONTHS.index(found["month"]) + 1,
            int(found["day"]),
            int(found["hour"]),
            int(found["minute"]),
            min(int(found["second"]), 59),
            tzinfo=UTC,
        )
    except ValueError:
        return None
