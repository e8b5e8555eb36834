"""Asking a decision service, and accepting its answer or not (DEC rules).

One request, never a retry. Whatever becomes of the answer, the request is accounted exactly once, before the answer is
looked at, so that spent tokens are never lost; a provider's exception reaches the caller as the same object. The
harness calls this once per routed step, and applications call it directly.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from anyio.lowlevel import checkpoint

from outpost_lsp.decisions.answers import read_answers
from outpost_lsp.domain.decision import (
    Decision,
    DecisionProvider,
    DecisionProviderResult,
    DecisionRequest,
    DecisionResult,
    PreparedState,
)
from outpost_lsp.domain.event import Event
from outpost_lsp.domain.lossless import lossless_fault
from outpost_lsp.domain.observation import DecisionEvent, DecisionRequestEvent, DecisionResponseEvent
from outpost_lsp.domain.usage import UNKNOWN, Usage, usage_from_report
from outpost_lsp.errors import OutpostError, configuration

logger = logging.getLogger(__name__)

State = str | list[Any] | dict[str, Any] | PreparedState


async def decide(
    provider: DecisionProvider,
    model: str,
    decision: Decision,
    state: State,
    *,
    observe: Callable[[Event], None] | None = None,
    account: Callable[[Usage], None] | None = None,
    allow_truncated: bool = False,
    verbose: bool = True,
) -> DecisionResult:
    """Ask `provider` the questions of `decision` about `state`.

    `account` is called exactly once for the request and may raise a budget's breach. `observe` is told about the
    request and its end, and about their content too when `verbose`. A truncated answer is a `response` fault unless
    `allow_truncated`.
    """
    _check_arguments(provider, model, decision, state)
    await checkpoint()
    request = DecisionRequest(model=model, questions=decision, state=state)
    call = _Call(provider.name, model, observe, account, verbose)
    call.started(request)
    try:
        answered = await provider.request(request)
    except BaseException as error:
        call.count_unknown()
        # A cancellation that arrived meanwhile goes before whatever the provider says about it (DEC-11, SYS-13).
        raised = await _first_cancellation(error)
        call.failed(raised)
        if raised is not error:
            raise raised from error
        raise
    try:
        usage = _read_usage(answered)
    except OutpostError as error:
        call.count_unknown()
        call.failed(error)
        raise
    try:
        call.count(usage)
        await checkpoint()
        result = _read(provider.name, decision, answered, usage)
        call.truncated = result.truncated
        if result.truncated and not allow_truncated:
            raise OutpostError(
                "response",
                "the decision service answered on a cut state: send it a smaller state, or allow truncated answers",
                {"truncated": True},
            )
    except BaseException as error:
        call.failed(error)
        raise
    call.finished(result)
    return result


class _Call:
    """The bookkeeping of one request: its receipt, its duration and its observers."""

    def __init__(
        self,
        provider: str,
        model: str,
        observe: Callable[[Event], None] | None,
        account: Callable[[Usage], None] | None,
        verbose: bool,
    ) -> None:
        self._provider = provider
        self._model = model
        self._observe = observe
        self._account = account
        self._verbose = verbose
        self._began = time.monotonic()
        self._usage = UNKNOWN
        self.truncated: bool | None = None

    def started(self, request: DecisionRequest) -> None:
        self._tell(DecisionEvent(status="started", provider=self._provider, model=self._model))
        if self._verbose and self._observe is not None:
            self._tell(DecisionRequestEvent(request=request.to_json()))

    def count(self, usage: Usage) -> None:
        self._usage = usage
        if self._account is not None:
            self._account(usage)

    def count_unknown(self) -> None:
        """Count a request that left no receipt; what a budget says to that must not hide the fault (DEC-16)."""
        try:
            self.count(UNKNOWN)
        except Exception as error:  # noqa: BLE001 - whatever the budget raises, the provider's fault is what counts
            logger.debug("the budget refused the receipt of a failed decision: %s", error)

    def finished(self, result: DecisionResult) -> None:
        self._end("finished", result.model)
        if self._verbose and self._observe is not None:
            self._tell(DecisionResponseEvent(response=result.to_json()))

    def failed(self, error: BaseException) -> None:
        code = error.code if isinstance(error, OutpostError) else None
        self._end("failed", self._model, code if isinstance(error, Exception) else "aborted")

    def _end(self, status: Any, model: str, code: str | None = None) -> None:
        self._tell(
            DecisionEvent(
                status=status,
                provider=self._provider,
                model=model,
                duration_ms=round((time.monotonic() - self._began) * 1000),
                usage=self._usage,
                truncated=self.truncated,
                code=code,
            )
        )

    def _tell(self, event: Event) -> None:
        if self._observe is None:
            return
        try:
            self._observe(event)
        except Exception:  # An observer never changes the outcome (EVT-01).
            logger.exception("an observer of decisions failed")


def _check_arguments(provider: Any, model: Any, decision: Any, state: Any) -> None:
    name = getattr(provider, "name", None)
    if not callable(getattr(provider, "request", None)) or not _is_name(name):
        raise configuration("decide: provider: a decision provider with a name is expected")
    if not _is_name(model):
        raise configuration("decide: model: the name of a decision model is expected")
    if not isinstance(decision, Decision):
        raise configuration("decide: decision: a Decision is expected")
    if isinstance(state, PreparedState):
        return
    if type(state) not in (str, list, dict):
        raise configuration("decide: state: text, a list or an object is expected")
    if fault := lossless_fault(state, "state"):
        raise configuration(f"decide: {fault}")


def _read_usage(answered: Any) -> Usage:
    if not isinstance(answered, DecisionProviderResult):
        raise OutpostError("response", "the decision provider returned no DecisionProviderResult")
    if answered.usage is None:
        return UNKNOWN
    if isinstance(answered.usage, Usage):
        return answered.usage
    try:
        return usage_from_report(answered.usage)
    except OutpostError as error:
        raise OutpostError("response", f"the decision service reported an invalid usage: {error.message}") from error


def _read(provider: str, decision: Decision, answered: DecisionProviderResult, usage: Usage) -> DecisionResult:
    model, truncated = answered.model, answered.truncated
    if not _is_name(model):
        raise OutpostError("response", "the decision service gave an invalid answer: model: a name is expected")
    if truncated is not None and not isinstance(truncated, bool):
        raise OutpostError(
            "response", "the decision service gave an invalid answer: truncated: one boolean is expected"
        )
    answers = read_answers(decision, answered.answers)
    if fault := lossless_fault(answered.metadata, "metadata"):
        raise OutpostError("response", f"the decision service gave an invalid answer: {fault}")
    return DecisionResult(
        provider=provider,
        model=model,
        answers=answers,
        usage=usage,
        truncated=truncated,
        metadata=answered.metadata,
    )


def _is_name(value: Any) -> bool:
    # Half of a surrogate pair could be neither sent nor written to a journal.
    if not isinstance(value, str) or not value.strip():
        return False
    return value.isascii() or not any("\ud800" <= mark <= "\udfff" for mark in value)


async def _first_cancellation(error: BaseException) -> BaseException:
    if not isinstance(error, Exception):
        return error
    try:
        await checkpoint()
    except BaseException as cancellation:  # noqa: BLE001 - it is handed back, and raised by the caller
        return cancellation
    return error
