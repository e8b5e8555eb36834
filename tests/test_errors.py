"""Faults and what travels with them (ERR and FAULT rules)."""

from __future__ import annotations

import itertools
from types import MappingProxyType

import pytest

from outpost_lsp.errors import (
    FAULT_CODES,
    OutpostError,
    quota_fault,
    record_recovery,
    recovery_details,
    unavailable_fault,
)


def chained(*errors: Exception) -> Exception:
    """The last one, caused by the one before, and so on."""
    for cause, error in itertools.pairwise(errors):
        error.__cause__ = cause
    return errors[-1]


def test_FAULT_01_the_codes_are_closed() -> None:
    assert len(FAULT_CODES) == len(set(FAULT_CODES)) == 17


def test_details_are_read_only_and_copied() -> None:
    given = {"status": 429}
    error = OutpostError("quota", "HTTP 429", given)
    given["status"] = 1
    assert error.details == {"status": 429}
    assert isinstance(error.details, MappingProxyType)
    with pytest.raises(TypeError):
        error.details["status"] = 2  # type: ignore[index]
    assert str(error) == "HTTP 429"


def test_FAULT_02_03_recovery_is_gathered_on_any_exception() -> None:
    class SlottedError(Exception):
        __slots__ = ()

    for error in (OutpostError("process", "x"), ValueError("x"), SlottedError("x")):
        assert recovery_details(error) is None
        record_recovery(error, {"branch": "a", "directory": "d"})
        record_recovery(error, {"branch": "b"})
        assert recovery_details(error) == {"branch": "b", "directory": "d"}


def test_ERR_02_FAULT_04_a_quota_is_found_eight_levels_deep_with_a_time_that_parses() -> None:
    quota = OutpostError("quota", "HTTP 429", {"resetAt": "2026-01-01T00:00:00Z"})
    found = quota_fault(chained(quota, *[ValueError(str(level)) for level in range(7)]))
    assert found is not None
    assert (found.message, found.reset_at) == ("HTTP 429", "2026-01-01T00:00:00Z")
    assert quota_fault(chained(quota, *[ValueError(str(level)) for level in range(8)])) is None
    odd = quota_fault(OutpostError("quota", "x", {"resetAt": "soon"}))
    assert odd is not None
    assert odd.reset_at is None


def test_ERR_03_04_unavailability_is_a_text_and_a_quota_always_wins() -> None:
    down = OutpostError("provider", "HTTP 503", {"unavailable": "HTTP 503"})
    assert unavailable_fault(ValueError("x")) is None
    assert unavailable_fault(OutpostError("provider", "x", {"unavailable": True})) is None
    found = unavailable_fault(chained(down, ValueError("outer")))
    assert found is not None
    assert found.message == "HTTP 503"
    assert down.code == "provider"
    quota = OutpostError("quota", "HTTP 429", {"unavailable": "yes"})
    assert unavailable_fault(quota) is None
    assert unavailable_fault(chained(quota, down)) is None
