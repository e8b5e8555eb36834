"""How long is waited before a request is sent again, and what `Retry-After` may say (HTTP-04, HTTP-06)."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from outpost_lsp.errors import OutpostError
from outpost_lsp.models.retry import retry_after_s, wait_before_retry


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("0", 0.0),
        ("17", 17.0),
        (" 17 ", 17.0),
        ("Sun, 06 Nov 1994 08:49:57 GMT", 20.0),
        ("Sunday, 06-Nov-94 08:49:57 GMT", 20.0),
        ("Sun Nov  6 08:49:57 1994", 20.0),
        ("Sun, 06 Nov 1994 08:49:17 GMT", 0.0),
        ("Sat, 05 Nov 1994 08:49:57 GMT", 0.0),
        ("-1", None),
        ("1.5", None),
        ("1e3", None),
        ("٣", None),
        ("", None),
        ("soon", None),
        ("1994-11-06T08:49:57Z", None),
        ("Sun, 06 Nov 1994 08:49:57 +0000", None),
        ("Sun, 31 Feb 1994 08:49:57 GMT", None),
        (None, None),
    ],
)
def test_HTTP_04_retry_after_has_four_forms(header: str | None, seconds: float | None) -> None:
    assert retry_after_s(header, datetime(1994, 11, 6, 8, 49, 37, tzinfo=UTC)) == seconds


def test_HTTP_04_a_two_digit_year_is_at_most_50_years_ahead() -> None:
    now = datetime(2026, 11, 30, tzinfo=UTC)
    ahead = retry_after_s("Monday, 30-Nov-76 00:00:00 GMT", now)
    assert ahead is not None
    assert ahead > 0
    assert retry_after_s("Tuesday, 30-Nov-77 00:00:00 GMT", now) == 0


def test_the_wait_grows_with_full_jitter_and_ends_with_the_retries() -> None:
    fault = OutpostError("provider", "x", {"unavailable": "x"})
    assert [wait_before_retry(fault, attempt, 3, lambda _low, high: high) for attempt in (1, 2, 3, 4)] == [
        0.5,
        1.0,
        2.0,
        None,
    ]
    drawn = {wait_before_retry(fault, 2, 3) for _ in range(50)}
    assert len(drawn) > 10
    assert all(wait is not None and 0 <= wait <= 1 for wait in drawn)
    assert wait_before_retry(OutpostError("timeout", "x"), 1, 3) is None
    assert wait_before_retry(OutpostError("response", "x"), 1, 3) is None
