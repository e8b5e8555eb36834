"""How long is waited before a request is sent again (HTTP-06)."""

from __future__ import annotations

from outpost_lsp.errors import OutpostError
from outpost_lsp.models.retry import wait_before_retry


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
