"""Reading `Retry-After`: whole seconds, or one of the three forms of an HTTP date (ERR-07).

Anything else is ignored, since a wait that was guessed is worse than none. Month and day names are English whatever
the locale.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from typing import Final

_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_DAY: Final = "(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
_LONG_DAY: Final = "(?:Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday)"
_MONTH: Final = f"(?P<month>{'|'.join(_MONTHS)})"
_TIME: Final = r"(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2}):(?P<second>[0-9]{2})"
_FORMS: Final = tuple(
    re.compile(form)
    for form in (
        rf"{_DAY}, (?P<day>[0-9]{{2}}) {_MONTH} (?P<year>[0-9]{{4}}) {_TIME} GMT",
        rf"{_LONG_DAY}, (?P<day>[0-9]{{2}})-{_MONTH}-(?P<year>[0-9]{{2}}) {_TIME} GMT",
        rf"{_DAY} {_MONTH} (?P<day>[0-9 ][0-9]) {_TIME} (?P<year>[0-9]{{4}})",
    )
)
_LONGEST_DIGITS: Final = 12
_LONGEST_S: Final = 10 * 365 * 86_400
"""Beyond ten years no calendar has to be asked."""


def retry_after_ms(value: str | None, now: datetime) -> int | None:
    """The wait in milliseconds from `now`, ten years at most; 0 for a moment that has passed."""
    if value is None:
        return None
    text = value.strip(" \t")
    if re.fullmatch(r"[0-9]+", text):
        return min(int(text[:_LONGEST_DIGITS]), _LONGEST_S) * 1000
    for form in _FORMS:
        if found := form.fullmatch(text):
            moment = _moment(found, now)
            return None if moment is None else max(0, math.ceil((moment - now).total_seconds() * 1000))
    return None


def _moment(found: re.Match[str], now: datetime) -> datetime | None:
    year = int(found["year"])
    if len(found["year"]) == 2:
        # Two digits mean the nearest such year that is at most 50 years ahead.
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
            # A leap second is the last second that this calendar knows.
            59 if found["second"] == "60" else int(found["second"]),
            tzinfo=UTC,
        )
    except ValueError:
        return None
