"""How long to wait before a request is sent again.

Pure: it is told what the service asked for and what time it is. `Retry-After` is a floor, never a ceiling (HTTP-06,
REL-09).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from random import SystemRandom
from typing import Final

from outpost_lsp.errors import OutpostError

LONGEST_WAIT_S: Final = 60.0
_FIRST_BACKOFF_S = 0.5
_LARGEST_BACKOFF_S = 30.0


class LastingError(OutpostError):
    """A fault that the same request would meet again, however often it is sent."""


Draw = Callable[[float, float], float]
"""Draws a number between two others."""

uniform: Final[Draw] = SystemRandom().uniform


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
