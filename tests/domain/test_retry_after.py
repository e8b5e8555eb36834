"""`Retry-After`: the forms that count, and that everything else is ignored."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from outpost_lsp.domain.retry_after import retry_after_ms

NOW = datetime(1994, 11, 6, 8, 49, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "wait_ms"),
    [
        ("0", 0),
        ("5", 5_000),
        (" 120 ", 120_000),
        ("Sun, 06 Nov 1994 08:49:37 GMT", 7_000),
        ("Sunday, 06-Nov-94 08:49:37 GMT", 7_000),
        ("Sun Nov  6 08:49:37 1994", 7_000),
        ("Sun Nov 16 08:49:30 1994", 10 * 86_400_000),
        ("Sun, 06 Nov 1994 08:49:60 GMT", 29_000),
        ("Sun, 06 Nov 1994 08:49:29 GMT", 0),
        ("Sat, 01 Jan 1972 00:00:00 GMT", 0),
        ("Sunday, 06-Nov-93 08:49:37 GMT", 0),
        (None, None),
        ("", None),
        ("soon", None),
        ("-1", None),
        ("1.5", None),
        ("+5", None),
        ("５", None),
        ("٣", None),
        ("1e3", None),
        ("9" * 13, 10 * 365 * 86_400_000),
        ("Sun, 6 Nov 1994 08:49:37 GMT", None),
        ("06 Nov 1994 08:49:37 GMT", None),
        ("Sun, 06 Nov 1994 08:49:37 +0000", None),
        ("Sun, 06 Nov 1994 08:49:37", None),
        ("Sun, 31 Feb 1994 08:49:37 GMT", None),
        ("Sun, 06 Nov 1994 25:49:37 GMT", None),
        ("1994-11-06T08:49:37Z", None),
    ],
)
def test_ERR_07_HTTP_04_seconds_and_the_three_date_forms_count(value: str | None, wait_ms: int | None) -> None:
    assert retry_after_ms(value, NOW) == wait_ms


def test_ERR_07_HTTP_04_two_digits_of_a_year_mean_at_most_fifty_years_ahead() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert retry_after_ms("Friday, 01-Jan-27 00:00:00 GMT", now) == 365 * 86_400_000
    assert retry_after_ms("Friday, 01-Jan-94 00:00:00 GMT", now) == 0
