"""Context strategies, instructions and skills (CTX, INSTR and SKILL rules)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from outpost_lsp import (
    Agent,
    ContextStrategy,
    Continuation,
    Harness,
    Instructions,
    Limits,
    ModelResult,
    ModelSpec,
    OutpostError,
    Skill,
    Tool,
    UsageLimits,
    summarize_history,
    truncate_tool_results,
)
from outpost_lsp.domain.message import Message, ReasoningBlock, TextBlock, ToolResultBlock, user
from outpost_lsp.harness.context import CompactionInput, compacted
from tests.harness.stage import Stage, calls, echo, provider, says, usage


def history(*sizes: int) -> list[Message]:
    messages = [user("go")]
    for number, size in enumerate(sizes):
        messages.append(Message(role="assistant", content=calls(("echo", {"n": number}, f"c{number}")).blocks))
        messages.append(Message(role="user", content=(ToolResultBlock(call_id=f"c{number}", content="x" * size),)))
    return messages


async def summary(_messages: Any) -> str:
    return "what happened"


def given(messages: list[Message], **more: Any) -> CompactionInput:
    return CompactionInput(
        messages=messages, step=1, model=more.pop("model", ModelSpec("m")), summarize=summary, **more
    )


async def test_CTX_03_04_old_results_are_cut_once(stage: Stage) -> None:
    strategy = truncate_tool_results(keep_recent=1, max_characters=10)
    first = await compacted(strategy, given(history(50, 50)))
    assert first is not None
    old, new = (message.results[0].content for message in first if message.results)
    assert old == "x" * 10 + "\n[cut from 50 characters]"
    assert new == "x" * 50
    assert await compacted(strategy, given(list(first))) is None


async def test_CTX_04_a_result_is_never_made_longer_and_a_forged_mark_protects_nothing() -> None:
    strategy = truncate_tool_results(keep_recent=1, max_characters=10)
    almost = await compacted(strategy, given(history(12, 5)))
    assert almost is None
    messages = history(5, 5)
    forged = ToolResultBlock(call_id="c0", content="y" * 500 + "\n[cut from 9 characters]")
    messages[2] = Message(role="user", content=(forged,))
    first = await compacted(strategy, given(messages))
    assert first is not None
    assert len(first[2].results[0].content) < 50
    assert await compacted(strategy, given(list(first))) is None


async def test_CTX_05_a_summary_is_not_summarized_again_by_itself() -> None:
    """Idempotent: where only an earlier summary stands between the first message and what is kept, nothing happens."""
    asked = 0

    async def count(_messages: Any) -> str:
        nonlocal asked
        asked += 1
        return "what happened"

    strategy = summarize_history(trigger_characters=10, keep_recent_messages=4)
    messages = history(5, 5, 5, 5)
    for forced in (False, True):
        shorter = await compacted(strategy, replace(given(messages, forced=forced), summarize=count))
        assert shorter is not None
        before = asked
        # What is kept is longer than the trigger by itself, so every step comes back here.
        assert await compacted(strategy, replace(given(list(shorter), forced=forced), summarize=count)) is None
        assert asked == before
    # With more behind it an earlier summary is part of the next one.
    grown = [*shorter, *history(5, 5, 5)[1:]]
    again = await compacted(strategy, replace(given(grown), summarize=count))
    assert again is not None
    assert len(again) < len(grown)


async def test_CTX_05_06_the_middle_becomes_a_summary_and_pairs_stay_whole() -> None:
    strategy = summarize_history(trigger_characters=10, keep_recent_messages=3)
    messages = history(5, 5, 5, 5)
    shorter = await compacted(strategy, given(messages))
    assert shorter is not None
    assert shorter[0] is messages[0]
    assert "what happened" in shorter[1].text
    # n = 9, keep 3: the cut is the last assistant message at or before index 6.
    assert list(shorter[2:]) == messages[5:]
    assert await compacted(summarize_history(trigger_characters=10_000), given(messages)) is None
    assert await compacted(strategy, given(messages[:2])) is None


async def test_CTX_09_the_window_of_the_model_sets_the_trigger() -> None:
    messages = history(3_000, 10, 10, 10)
    assert await compacted(summarize_history(), given(messages)) is None
    shorter = await compacted(summarize_history(), given(messages, model=ModelSpec("m", context_window=1_000)))
    assert shorter is not None


async def test_CTX_02_a_compaction_replaces_the_history_and_is_recorded(stage: Stage) -> None:
    def drop(given: CompactionInput) -> list[Message] | None:
        return [user("shorter")] if given.step == 2 else None

    first = ModelResult(
        content=(ReasoningBlock(provider="scripted", model="m", data=1), *calls(("echo", {"text": "x"})).blocks),
        usage=usage(1, 0, 1),
    )
    model = provider(first, says("done"))
    result = await stage.run(Agent("m", Harness(model, tools=[echo], context=ContextStrategy("drop", drop))))
    assert [message.text for message in model.requests[1].messages] == ["shorter"]
    (event,) = stage.of("compaction")
    assert (event.strategy, event.messages) == ("drop", 1)
    assert '"compaction"' in (result.transcript or stage.repository).read_text()


async def test_CTX_02_a_message_of_reasoning_only_is_dropped(stage: Stage) -> None:
    def keep(given: CompactionInput) -> list[Message] | None:
        if given.step != 2:
            return None
        lonely = Message(role="assistant", content=(ReasoningBlock(provider="p", model="m", data=1),))
        return [user("a"), lonely, user("b")]

    model = provider(calls(("echo", {"text": "x"})), says("done"))
    await stage.run(Agent("m", Harness(model, tools=[echo], context=ContextStrategy("keep", keep))))
    assert [message.text for message in model.requests[1].messages] == ["a", "b"]


@pytest.mark.parametrize("value", ["text", [1], [{"role": "user"}]])
async def test_CTX_a_strategy_that_returns_nonsense_fails_the_turn(stage: Stage, value: Any) -> None:
    subject = Agent("m", Harness(provider(says("x")), context=ContextStrategy("odd", lambda _given: value)))
    with pytest.raises(OutpostError) as caught:
        await stage.run(subject)
    assert caught.value.code == "configuration"


async def test_CTX_07_LOOP_20_the_summary_is_an_accounted_request_of_the_active_model(stage: Stage) -> None:
    model = provider(
        calls(("echo", {"text": "long" * 50})), calls(("echo", {"text": "b"}, "c2")), says("short"), says("done")
    )
    subject = Agent(
        ModelSpec("m", "high", 99),
        Harness(model, tools=[echo], context=summarize_history(trigger_characters=500, keep_recent_messages=1)),
    )
    result = await stage.run(subject)
    asked = model.requests[2]
    assert (asked.model, asked.reasoning, asked.max_output_tokens) == ("m", "high", 99)
    assert asked.messages is None
    assert "echo" in (asked.prompt or "")
    assert asked.system
    assert [event.source for event in stage.of("usage")] == ["model", "model", "summary", "model"]
    assert result.usage.output == 4


@pytest.mark.parametrize(
    "answer", [says(" "), ModelResult(text="half", stop_reason="max-tokens", usage=usage(1, 0, 1))]
)
async def test_CTX_08_a_summary_that_did_not_end_well_fails_the_turn(stage: Stage, answer: ModelResult) -> None:
    model = provider(calls(("echo", {"text": "long" * 50})), calls(("echo", {"text": "b"}, "c2")), answer)
    context = summarize_history(trigger_characters=500, keep_recent_messages=1)
    with pytest.raises(OutpostError) as caught:
        await stage.run(Agent("m", Harness(model, tools=[echo], context=context)))
    assert caught.value.code == "response"


async def test_LOOP_19_a_summary_over_the_budget_fails_the_turn(stage: Stage) -> None:
    model = provider(
        calls(("echo", {"text": "long" * 50})), calls(("echo", {"text": "b"}, "c2")), says("short", output=9)
    )
    subject = Agent(
        "m",
        Harness(
            model,
            tools=[echo],
            context=summarize_history(trigger_characters=500, keep_recent_messages=1),
            limits=Limits(usage=UsageLimits(output=5)),
        ),
    )
    with pytest.raises(OutpostError) as caught:
        await stage.run(subject)
    assert caught.value.details["limit"] == "usage"


FULL = OutpostError("provider", "the maximum context length is exceeded", {"reason": "context-length"})


async def test_CTX_11_REL_10_a_full_context_leads_to_one_compaction_and_one_more_request(stage: Stage) -> None:
    model = provider(
        *[calls(("echo", {"text": "y" * 3_000}, f"c{number}")) for number in range(3)], FULL, says("s"), says("done")
    )
    result = await stage.run(Agent("m", Harness(model, tools=[echo])))
    assert result.text == "done"
    refused, again = model.requests[3], model.requests[5]
    assert refused.messages != again.messages
    assert len(model.requests) == 6


async def test_CTX_11_REL_10_a_second_refusal_ends_the_turn(stage: Stage) -> None:
    model = provider(
        *[calls(("echo", {"text": "y" * 3_000}, f"c{number}")) for number in range(3)], FULL, says("s"), FULL
    )
    with pytest.raises(OutpostError) as caught:
        await stage.run(Agent("m", Harness(model, tools=[echo])))
    assert caught.value.details["reason"] == "context-length"


async def test_CTX_11_REL_10_nothing_is_sent_again_unchanged(stage: Stage) -> None:
    model = provider(FULL)
    with pytest.raises(OutpostError):
        await stage.run(Agent("m", Harness(model)))
    assert len(model.requests) == 1


# Instructions


@pytest.mark.parametrize("value", ["", "  ", 7, [""]])
def test_INSTR_04_a_blank_literal_is_refused(value: Any) -> None:
    with pytest.raises(OutpostError) as caught:
        Harness(provider(), instructions=value)
    assert caught.value.code == "configuration"


async def test_INSTR_01_a_callable_must_return_text(stage: Stage) -> None:
    subject = Agent("m", Harness(provider(says("x")), instructions=Instructions(lambda _context: 7)))
    with pytest.raises(OutpostError, match="text"):
        await stage.run(subject)


async def test_INSTR_05_repository_instructions_are_read_from_the_snapshot_and_noted(stage: Stage) -> None:
    from outpost_lsp import repository_instructions

    (stage.repository / "AGENTS.md").write_text("Prefer tabs.\n")
    (stage.repository / "EMPTY.md").write_text("\n")
    model = provider(says("x"))
    subject = Agent(
        "m", Harness(model, instructions=repository_instructions(("AGENTS.md", "EMPTY.md", "NONE.md"), trusted=False))
    )
    result = await stage.run(subject)
    assert "Prefer tabs." in (model.requests[0].system or "")
    assert "repository's own words" in (model.requests[0].system or "")
    assert [note for note in result.notes if "instruction file" in note] == [
        "instruction file AGENTS.md used",
        "instruction file EMPTY.md skipped: it is empty",
    ]


# Skills


def skill() -> Skill:
    special = Tool("special", "Special.", {"type": "object"}, lambda _value, _context: "special")
    return Skill("tables", "How to read tables.", "Read row by row.", tools=[special])


async def test_SKILL_01_02_03_04_05_a_skill_unlocks_its_tools_from_the_next_step_on(stage: Stage) -> None:
    model = provider(
        calls(("special", {})),
        calls(("load_skill", {"name": "nothing"}, "a"), ("load_skill", {"name": "tables"}, "b"), ("special", {}, "c")),
        calls(("special", {}, "d")),
        says("done"),
        calls(("special", {}, "e")),
        says("again"),
    )
    subject = Agent("m", Harness(model, skills=[skill()]))
    result = await stage.run(subject)
    assert "tables: How to read tables." in (model.requests[0].system or "")
    assert [tool.name for tool in model.requests[0].tools] == ["load_skill", "special"]
    first = model.requests[1].messages[-1].results[0]
    assert first.is_error
    assert "tables" in first.content
    unknown, loaded, early = model.requests[2].messages[-1].results
    assert unknown.is_error
    assert loaded.content.startswith("Read row by row.")
    assert "special" in loaded.content
    # A call in the same step as its load_skill is still denied.
    assert early.is_error
    assert not model.requests[3].messages[-1].results[0].is_error
    assert [event.names for event in stage.of("skills-loaded")] == [("tables",)]
    # It survives a resume.
    await stage.run(subject, "again", continuation=Continuation(result.conversation or ""))
    assert not model.requests[5].messages[-1].results[0].is_error


def test_SKILL_a_plain_tool_named_load_skill_beside_skills_is_a_duplicate() -> None:
    plain = Tool("load_skill", "Mine.", {"type": "object"}, lambda _value, _context: "")
    with pytest.raises(OutpostError, match="load_skill"):
        Harness(provider(), tools=[plain], skills=[skill()])
    with pytest.raises(OutpostError, match="tables"):
        Harness(provider(), skills=[Skill("tables", "One.", "x"), Skill("tables", "Two.", "y")])


async def test_CTX_10_dropping_the_load_locks_the_skill_again(stage: Stage) -> None:
    def forget(given: CompactionInput) -> list[Message] | None:
        return [user("go on")] if given.step == 3 else None

    model = provider(
        calls(("load_skill", {"name": "tables"}, "a")),
        calls(("special", {}, "b")),
        calls(("echo", {"text": "x"}, "x")),
        calls(("special", {}, "c")),
        says("done"),
    )
    await stage.run(
        Agent("m", Harness(model, tools=[echo], skills=[skill()], context=ContextStrategy("forget", forget)))
    )
    assert not model.requests[2].messages[-1].results or model.requests[2].messages[-1].text == "go on"
    assert model.requests[4].messages[-1].results[0].is_error


def test_messages_hold_text_blocks() -> None:
    assert Message(role="assistant", content=(TextBlock(text="a"), TextBlock(text="b"))).text == "ab"
