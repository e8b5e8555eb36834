"""Faults: one exception class, a closed set of codes, and what travels with a fault.

Every fault that a caller can act on is an `OutpostError`. The code says what kind of thing went wrong, `details` is
frozen and travels as JSON (camelCase keys), and `recovery` gathers, while the fault climbs, what a person needs to find
the work that was left behind. Rules: ERR and FAULT in the engine rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final, Literal, get_args
from weakref import WeakKeyDictionary

FaultCode = Literal[
    "stuck",
    "guard",
    "rejected",
    "configuration",
    "process",
    "timeout",
    "aborted",
    "workspace",
    "conflict",
    "prompt",
    "response",
    "session",
    "provider",
    "limit",
    "quota",
    "replay",
    "steering",
]

FAULT_CODES: Final[tuple[str, ...]] = get_args(FaultCode)

_CHAIN_DEPTH = 8
_RECOVERY_ATTRIBUTE = "__outpost_recovery__"
_recovery: WeakKeyDictionary[BaseException, dict[str, Any]] = WeakKeyDictionary()


class OutpostError(Exception):
    """A fault with a code of the closed set.

    `details` is read-only. `cause`, when given, becomes `__cause__`, as with ``raise ... from``.
    """

    def __init__(
        self,
        code: FaultCode,
        message: str,
        details: Mapping[str, Any] | None = None,
        cause: BaseException | None = None,
    ) -> None:
        super().__init__(message)
        self.code: FaultCode = code
        self.message = message
        self.details: Mapping[str, Any] = MappingProxyType(dict(details or {}))
        if cause is not None:
            self.__cause__ = cause

    def __str__(self) -> str:
        return self.message

    def __repr__(self) -> str:
        return f"OutpostError({self.code!r}, {self.message!r})"

    @property
    def recovery(self) -> Mapping[str, Any]:
        """What was gathered about the work left behind; empty when nothing was."""
        return recovery_details(self) or {}


@dataclass(frozen=True, slots=True)
class QuotaFault:
    """A rate or usage limit of a service. `reset_at` is an ISO 8601 time, kept only when it parses."""

    message: str
    reset_at: str | None = None


@dataclass(frozen=True, slots=True)
class UnavailableFault:
    """A service that could not be reached or was overloaded."""

    message: str


def configuration(message: str, **details: Any) -> OutpostError:
    """A violated precondition; the message names the option (ERR-01)."""
    return OutpostError("configuration", message, details)


def record_recovery(error: BaseException, details: Mapping[str, Any]) -> None:
    """Merge `details` over what is already known; works for any exception object (FAULT-02)."""
    try:
        _recovery.setdefault(error, {}).update(details)
    except TypeError:
        known = dict(getattr(error, _RECOVERY_ATTRIBUTE, {}))
        known.update(details)
        setattr(error, _RECOVERY_ATTRIBUTE, known)


def recovery_details(error: BaseException) -> Mapping[str, Any] | None:
    """What `record_recovery` gathered for this very exception object, else `None`."""
    try:
        found = _recovery.get(error)
    except TypeError:
        found = getattr(error, _RECOVERY_ATTRIBUTE, None)
    return None if found is None else MappingProxyType(found)


def leading_failure(error: BaseException) -> BaseException:
    """The failure that came first: of a group, which travels when saving failed as well, the first one (FAULT-05)."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def quota_fault(error: BaseException) -> QuotaFault | None:
    """The first `quota` fault of the cause chain, at most 8 levels deep (ERR-02)."""
    for fault in _chain(error):
        if fault.code == "quota":
            return QuotaFault(fault.message, _parseable_time(fault.details.get("resetAt")))
    return None


def unavailable_fault(error: BaseException) -> UnavailableFault | None:
    """The first fault of the cause chain that says its service was unavailable (ERR-03); a quota never is (ERR-04)."""
    if quota_fault(error) is not None:
        return None
    for fault in _chain(error):
        text = fault.details.get("unavailable")
        if isinstance(text, str):
            return UnavailableFault(text)
    return None


def _chain(error: BaseException) -> Iterator[OutpostError]:
    current: BaseException | None = leading_failure(error)
    for _ in range(_CHAIN_DEPTH):
        if current is None:
            return
        if isinstance(current, OutpostError):
            yield current
        current = current.__cause__


def _parseable_time(value: object) -> str | None:
    if not isinstance(value, str):
        return None
    try:
        datetime.fromisoformat(value)
    except ValueError:
        return None
    return value
