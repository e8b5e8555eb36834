"""Candidates tried in order (FALL rules)."""

from __future__ import annotations

from typing import Any

import pytest

from outpost_lsp import Agent, FallbackAgent, Harness, OutpostError, Subagent, Tool, recovery_details
from tests.harness.stage import Stage, calls, echo, provider, says

QUOTA = OutpostError("quota", "HTTP 429", {"resetAt": "2026-01-01T00:00:00Z"})
DOWN = OutpostError("provider", "HTTP 503", {"unavailable": "HTTP 503"})


def one(*replies: Any, name: str = "m", **harness: Any) -> Agent:
    return Agent(name, Harness(provider(*replies), **harness))


@pytest.mark.parametrize(
    ("candidates", "on"),
    [
        ([], ["quota"]),
        ([one()], ["quota"]),
        ([one(), one()], []),
        ([one(), one()], "quota"),
        ([one(), one()], ["quota", "quota"]),
        ([one(), one()], ["boredom"]),
        ([one(), FallbackAgent([one(), one()], ["quota"])], ["quota"]),
        ([one(), None], ["quota"]),
    ],
)
def test_FALL_01_a_wrong_declaration_is_refused(candidates: Any, on: Any) -> None:
    with pytest.raises(OutpostError) as caught:
        FallbackAgent(candidates, on)
    assert caught.value.code == "configuration"


@pytest.mark.parametrize(("fault", "trigger"), [(QUOTA, "quota"), (DOWN, "unavailable")])
async def test_FALL_02_03_04_05_the_next_candidate_takes_over(stage: Stage, fault: OutpostError, trigger: str) -> None:
    async def write(value: Any, context: Any) -> str:
        await context.sandbox.files.write("a.txt", b"kept")
        return "written"

    async def look(_value: Any, context: Any) -> str:
        return (await context.sandbox.files.read("a.txt", limit=10)).decode()

    first = one(calls(("write", {})), fault, tools=[Tool("write", "W.", {"type": "object"}, write)], name="one")
    second_model = provider(calls(("look", {})), says("done"))
    second = Agent("two", Harness(second_model, tools=[Tool("look", "L.", {"type": "object"}, look)]))
    result = await stage.run(FallbackAgent([first, second], [trigger]), "the brief")  # type: ignore[list-item]
    assert result.text == "done"
    # The same sandbox, the original brief, a conversation of its own.
    assert second_model.requests[1].messages[-1].results[0].content == "kept"
    assert [message.text for message in second_model.requests[0].messages] == ["the brief"]
    assert len({event.id for event in stage.of("conversation")}) == 2
    record = result.fallback
    assert record is not None
    assert (record.selected.index, record.selected.name) == (1, "two")
    assert [(attempt.name, attempt.failure) for attempt in record.attempts] == [("one", trigger)]
    assert result.notes[-1] == f"one failed ({trigger}: {fault.message}); two went on"
    (event,) = stage.of("fallback")
    assert (event.from_.name, event.to.name, event.failure) == ("one", "two", trigger)
    assert [event.pass_ for event in stage.of("prompt")] == [1, 2]
    # FALL-06: what the failed candidate used counts.
    assert result.usage.output == 3


async def test_FALL_02_anything_else_is_raised_at_once(stage: Stage) -> None:
    second = provider(says("never"))
    for fault in (OutpostError("provider", "HTTP 401"), DOWN):
        with pytest.raises(OutpostError) as caught:
            await stage.run(FallbackAgent([one(fault), Agent("m", Harness(second))], ["quota"]))
        assert caught.value is fault
    assert second.requests == []


async def test_FALL_04_without_a_handover_the_record_has_no_attempts(stage: Stage) -> None:
    result = await stage.run(FallbackAgent([one(says("x")), one()], ["quota"], names=["a", "b"]))
    assert result.fallback is not None
    assert (result.fallback.selected.name, result.fallback.attempts) == ("a", ())


async def test_FALL_07_when_all_fail_the_attempts_travel_with_the_error(stage: Stage) -> None:
    later = OutpostError("quota", "HTTP 429", {"resetAt": "2027-01-01T00:00:00Z"})
    with pytest.raises(OutpostError) as caught:
        await stage.run(FallbackAgent([one(later), one(QUOTA)], ["quota"]))
    assert (caught.value.code, caught.value.details["resetAt"]) == ("quota", "2026-01-01T00:00:00Z")
    assert len((recovery_details(caught.value) or {})["fallback"]) == 2
    unset = OutpostError("quota", "HTTP 429")
    with pytest.raises(OutpostError) as caught:
        await stage.run(FallbackAgent([one(QUOTA), one(unset)], ["quota"]))
    assert "resetAt" not in caught.value.details
    with pytest.raises(OutpostError) as caught:
        await stage.run(FallbackAgent([one(QUOTA), one(DOWN)], ["quota", "unavailable"]))
    assert caught.value is DOWN


async def test_FALL_08_a_continuation_is_refused_and_so_is_delegation(stage: Stage) -> None:
    fallback = FallbackAgent([one(says("x")), one()], ["quota"])
    with pytest.raises(OutpostError) as caught:
        await stage.run(fallback, continuation="x")
    assert caught.value.code == "configuration"
    with pytest.raises(OutpostError):
        Subagent("f", "F.", fallback)  # type: ignore[arg-type]


async def test_the_loop_of_a_candidate_keeps_its_tools(stage: Stage) -> None:
    subject = FallbackAgent([one(calls(("echo", {"text": "x"})), says("ok"), tools=[echo]), one()], ["quota"])
    assert (await stage.run(subject)).text == "ok"
