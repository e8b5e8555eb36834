"""Asking a decision: what is checked before, what is counted whatever happens, and what reaches the caller."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import pytest

from outpost_lsp.decisions.decide import decide
from outpost_lsp.decisions.scripted import ScriptedDecisionProvider
from outpost_lsp.domain.decision import (
    Choice,
    ChoiceAnswer,
    Decision,
    DecisionProviderResult,
    DecisionRequest,
    Noul,
    PreparedState,
)
from outpost_lsp.domain.event import Event
from outpost_lsp.domain.observation import DecisionEvent
from outpost_lsp.domain.usage import UNKNOWN, Usage
from outpost_lsp.errors import OutpostError, configuration
from tests.decisions.providers import Provider, giving

ROUTE = Decision({"route": Choice("Which model takes the next step?", {"fast": "Routine", "deep": "Reasoning"})})
ANSWERS = {
    "route": {"type": "choice", "choice": "fast", "probabilities": {"fast": 0.9, "deep": 0.1}, "confidence": 0.8}
}
USAGE = Usage(input=12, output=3)


class Log:
    """Receipts and events in the order in which they came."""

    def __init__(self, breach: Exception | None = None) -> None:
        self.receipts: list[Usage] = []
        self.events: list[Event] = []
        self.breach = breach

    def account(self, usage: Usage) -> None:
        self.receipts.append(usage)
        if self.breach is not None:
            raise self.breach

    def observe(self, event: Event) -> None:
        self.events.append(event)

    @property
    def kinds(self) -> list[str]:
        return [event.status if isinstance(event, DecisionEvent) else event.kind for event in self.events]

    @property
    def last(self) -> DecisionEvent:
        events = [event for event in self.events if isinstance(event, DecisionEvent)]
        return events[-1]


def result(**changes: Any) -> DecisionProviderResult:
    return DecisionProviderResult(**{"model": "checkpoint", "answers": ANSWERS, "usage": USAGE, **changes})


async def asked(provider: Any, log: Log, state: Any = "state", model: Any = "auto", **options: Any) -> Any:
    return await decide(provider, model, ROUTE, state, observe=log.observe, account=log.account, **options)


async def refused(provider: Any, log: Log, code: str, **options: Any) -> OutpostError:
    with pytest.raises(OutpostError) as caught:
        await asked(provider, log, **options)
    assert caught.value.code == code
    return caught.value


async def test_a_valid_answer_comes_back_typed() -> None:
    log = Log()
    answered = await asked(giving(result(metadata={"x": 1})), log)
    assert answered.answers["route"] == ChoiceAnswer("fast", {"fast": 0.9, "deep": 0.1}, 0.8)
    assert (answered.provider, answered.model, answered.usage) == ("mine", "checkpoint", USAGE)
    assert answered.metadata == {"x": 1}
    assert answered.truncated is None
    assert log.receipts == [USAGE]


@pytest.mark.parametrize("state", [1, 1.5, True, None, ("a",), {"a": {1}}, {"a": float("nan")}, [object()], {1: 2}])
async def test_DEC_10_an_invalid_state_is_refused_before_any_request(state: Any) -> None:
    provider, log = giving(result()), Log()
    error = await refused(provider, log, "configuration", state=state)
    assert "state" in error.message
    assert (provider.calls, log.receipts, log.events) == (0, [], [])


@pytest.mark.parametrize("state", ["", "text", [], [1], {}, {"a": None}])
async def test_DEC_10_text_lists_and_objects_are_accepted(state: Any) -> None:
    provider = ScriptedDecisionProvider(["fast"])
    await asked(provider, Log(), state=state)
    assert provider.requests[0].state == state


async def test_DEC_10_a_prepared_state_is_taken_as_it_is() -> None:
    class Prepared(PreparedState):
        def value(self) -> dict[str, Any]:
            return {"step": 1}

        def encoded(self) -> bytes:
            return b'{"step":1}'

    provider = ScriptedDecisionProvider(["fast"])
    await asked(provider, Log(), state=Prepared())
    assert provider.requests[0].state == {"step": 1}


async def test_DEC_11_a_cancelled_scope_makes_no_request() -> None:
    provider, log = giving(result()), Log()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await asked(provider, log)
    assert scope.cancelled_caught
    assert (provider.calls, log.receipts, log.events) == (0, [], [])


async def test_DEC_11_a_cancelled_task_makes_no_request() -> None:
    provider, log = giving(result()), Log()

    async def cancelled_before_it_starts() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asked(provider, log)

    with pytest.raises(asyncio.CancelledError):
        await asyncio.ensure_future(cancelled_before_it_starts())
    assert (provider.calls, log.receipts, log.events) == (0, [], [])


@pytest.mark.parametrize("model", ["", "  ", None, 5, "\ud800"])
async def test_DEC_12_the_model_is_a_nonblank_name(model: Any) -> None:
    provider, log = giving(result()), Log()
    error = await refused(provider, log, "configuration", model=model)
    assert "model" in error.message
    assert (provider.calls, log.events) == (0, [])


@pytest.mark.parametrize("provider", [None, object(), Provider(None, name=" "), Provider(None, name=5)])
async def test_DEC_12_the_provider_has_a_name_and_a_request(provider: Any) -> None:
    error = await refused(provider, Log(), "configuration")
    assert "provider" in error.message


async def test_DEC_12_the_decision_is_a_declared_one() -> None:
    with pytest.raises(OutpostError, match="decision: a Decision is expected"):
        await decide(giving(result()), "auto", {"q": Noul("Done?")}, "state")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "error", [OutpostError("quota", "later"), configuration("key"), RuntimeError("boom"), ValueError("odd")]
)
async def test_DEC_13_the_exception_of_a_provider_is_the_same_object_after_one_request(error: Exception) -> None:
    async def failing(_request: DecisionRequest) -> Any:
        raise error

    provider, log = Provider(failing), Log()
    with pytest.raises(type(error)) as caught:
        await asked(provider, log)
    assert caught.value is error
    assert provider.calls == 1
    assert log.receipts == [UNKNOWN]
    assert log.kinds == ["started", "decision-request", "failed"]
    assert log.last.code == getattr(error, "code", None)


async def test_DEC_14_valid_usage_counts_even_when_the_answer_is_rejected() -> None:
    log = Log()
    await refused(giving(result(answers={})), log, "response")
    assert log.receipts == [USAGE]
    assert log.last.usage == USAGE


async def test_DEC_14_ROUTE_45_accounting_comes_before_the_cancellation_check() -> None:
    log = Log()
    async with anyio.create_task_group() as group:

        async def answers_although_cancelled(_request: DecisionRequest) -> Any:
            group.cancel_scope.cancel()
            return result()

        await asked(Provider(answers_although_cancelled), log)
    assert group.cancel_scope.cancel_called
    assert log.receipts == [USAGE]
    assert log.kinds[-1] == "failed"
    assert log.last.code == "aborted"


async def test_DEC_14_the_cancellation_check_comes_before_the_answers_check() -> None:
    with anyio.CancelScope() as scope:

        async def answers_badly_although_cancelled(_request: DecisionRequest) -> Any:
            scope.cancel()
            return result(answers={})

        await asked(Provider(answers_badly_although_cancelled), Log())
    assert scope.cancelled_caught


async def test_DEC_14_a_breach_of_the_budget_comes_before_the_answers_check() -> None:
    breach = OutpostError("limit", "too much")
    log = Log(breach)
    with pytest.raises(OutpostError) as caught:
        await asked(giving(result(answers={})), log)
    assert caught.value is breach
    assert log.last.code == "limit"
    assert log.last.usage == USAGE


async def test_DEC_14_the_answers_check_comes_before_the_truncation_check() -> None:
    error = await refused(giving(result(answers={}, truncated=True)), Log(), "response")
    assert "truncated" not in error.details


async def test_DEC_15_missing_usage_becomes_an_incomplete_zero() -> None:
    log = Log()
    answered = await asked(giving(result(usage=None)), log)
    assert answered.usage == UNKNOWN
    assert log.receipts == [UNKNOWN]


@pytest.mark.parametrize(
    "usage",
    [
        {"input": -1, "output": 0},
        {"input": 1.0, "output": 0},
        {"input": True, "output": 0},
        {"input": 1},
        {"input": 1, "output": None},
        {"input": 1, "cached": 2, "output": 0},
        {"input": 1, "output": 0, "complete": "no"},
        "12",
        [],
    ],
)
async def test_DEC_15_invalid_usage_is_a_response_fault(usage: Any) -> None:
    log = Log()
    await refused(giving(result(usage=usage)), log, "response")
    assert log.receipts == [UNKNOWN]
    assert log.kinds[-1] == "failed"


async def test_DEC_16_a_budget_that_refuses_the_empty_receipt_does_not_hide_the_fault_of_the_provider() -> None:
    error = OutpostError("provider", "down", {"unavailable": "HTTP 503"})

    async def failing(_request: DecisionRequest) -> Any:
        raise error

    log = Log(configuration("complete receipts are needed"))
    with pytest.raises(OutpostError) as caught:
        await asked(Provider(failing), log)
    assert caught.value is error
    assert log.receipts == [UNKNOWN]


async def test_DEC_16_a_budget_that_refuses_the_empty_receipt_does_not_hide_an_invalid_usage() -> None:
    log = Log(configuration("complete receipts are needed"))
    await refused(giving(result(usage="12")), log, "response")
    assert log.receipts == [UNKNOWN]


async def test_DEC_16_a_cancelled_request_leaves_an_empty_receipt() -> None:
    log, begun = Log(), anyio.Event()

    async def hanging(_request: DecisionRequest) -> Any:
        begun.set()
        await anyio.sleep_forever()

    async with anyio.create_task_group() as group:
        group.start_soon(asked, Provider(hanging), log)
        await begun.wait()
        group.cancel_scope.cancel()
    assert log.receipts == [UNKNOWN]
    assert log.kinds == ["started", "decision-request", "failed"]
    assert log.last.code == "aborted"


async def test_DEC_16_a_cancellation_goes_before_the_fault_of_the_provider() -> None:
    log = Log()
    with anyio.CancelScope() as scope:

        async def fails_while_cancelled(_request: DecisionRequest) -> Any:
            scope.cancel()
            raise OutpostError("provider", "down")

        await asked(Provider(fails_while_cancelled), log)
    assert scope.cancelled_caught
    assert log.receipts == [UNKNOWN]
    assert log.last.code == "aborted"


async def test_DEC_16_a_provider_that_returns_something_else_is_a_response_fault() -> None:
    for returned in (None, {"model": "m", "answers": ANSWERS}):
        log = Log()
        await refused(giving(returned), log, "response")
        assert log.receipts == [UNKNOWN]


async def test_DEC_17_a_truncated_answer_is_refused_unless_allowed() -> None:
    log = Log()
    error = await refused(giving(result(truncated=True)), log, "response")
    assert error.details["truncated"] is True
    assert log.receipts == [USAGE]
    assert log.last.truncated is True
    allowed = await asked(giving(result(truncated=True)), Log(), allow_truncated=True)
    assert allowed.truncated is True


async def test_DEC_17_an_absent_truncation_stays_unknown() -> None:
    log = Log()
    assert (await asked(giving(result()), log)).truncated is None
    assert "truncated" not in log.last.to_json()
    assert (await asked(giving(result(truncated=False)), Log())).truncated is False


async def test_DEC_18_numbers_are_kept_exactly_as_received() -> None:
    probabilities = {"fast": 0.33334, "deep": 0.6667}
    answers = {"route": {"type": "choice", "choice": "deep", "probabilities": probabilities, "confidence": 1}}
    answer = (await asked(giving(result(answers=answers)), Log())).answers["route"]
    assert isinstance(answer, ChoiceAnswer)
    assert answer.probabilities == probabilities
    assert type(answer.confidence) is int


async def test_OBS_02_the_order_of_events_of_a_good_decision() -> None:
    log = Log()
    await asked(giving(result()), log, state={"step": 1})
    assert log.kinds == ["started", "decision-request", "finished", "decision-response"]
    request, response = log.events[1].to_json(), log.events[3].to_json()
    assert request["request"] == {"model": "auto", "state": {"step": 1}, "questions": ROUTE.to_json()}
    assert response["response"]["answers"]["route"]["choice"] == "fast"
    assert response["response"]["provider"] == "mine"


async def test_OBS_02_a_finished_event_names_the_answered_model_and_a_started_one_the_requested() -> None:
    log = Log()
    await asked(giving(result(truncated=False)), log)
    started, finished = (event.to_json() for event in log.events if isinstance(event, DecisionEvent))
    assert started == {"kind": "decision", "status": "started", "provider": "mine", "model": "auto"}
    assert finished.pop("durationMs") >= 0
    assert finished == {
        "kind": "decision",
        "status": "finished",
        "provider": "mine",
        "model": "checkpoint",
        "usage": USAGE.to_json(),
        "truncated": False,
    }


async def test_OBS_03_content_is_told_only_when_verbose() -> None:
    log = Log()
    await asked(giving(result()), log, verbose=False)
    assert log.kinds == ["started", "finished"]


async def test_EVT_01_an_observer_that_raises_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def failing(_event: Event) -> None:
        raise RuntimeError("observer")

    answered = await decide(giving(result()), "auto", ROUTE, "state", observe=failing)
    assert answered.model == "checkpoint"
    assert "an observer of decisions failed" in caplog.text


async def test_a_decision_needs_neither_observer_nor_account() -> None:
    assert (await decide(giving(result()), "auto", ROUTE, "state")).usage == USAGE
