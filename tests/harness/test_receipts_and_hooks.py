"""Receipts that are none, limits that are seen late, hooks that hand back what they got, skills that gate nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from pydantic import BaseModel

from outpost_lsp import (
    Agent,
    CliAgent,
    Harness,
    Hook,
    Limits,
    ModelRequest,
    ModelResult,
    OutpostError,
    PermissionRule,
    Permissions,
    Skill,
    Tool,
    Usage,
    UsageLimits,
)
from outpost_lsp.domain.model import Completed
from tests.harness.stage import Stage, calls, echo, provider, says, usage


class Reporting:
    """A service of an application's own, which reports its usage in its own way."""

    name = identity = "reporting"

    def __init__(self, report: Any) -> None:
        self.report = report

    async def stream(self, _request: ModelRequest, /) -> AsyncIterator[Completed]:
        report = Usage(**self.report.fields) if isinstance(self.report, Unchecked) else self.report
        yield Completed(ModelResult(text="done", usage=report))


class Unchecked:
    """Counters that the service itself makes a `Usage` of."""

    def __init__(self, **fields: Any) -> None:
        self.fields = fields


@pytest.mark.parametrize(
    "report",
    [
        Unchecked(input=-1, output=0),
        Unchecked(input=1.5, output=0),
        Unchecked(input=5, cached=6, output=0),
        Unchecked(input=5, cached=3, cache_created=3, output=0),
        Usage.model_construct(input=5, cached=6, output=0),
        {"input": -1, "output": 0},
        {"input": 1, "output": 0, "cached": True},
        {"input": 1},
        {"input": 1, "output": 1, "tokens": 3},
        7,
    ],
)
async def test_TBUD_05_EXEC_07_counters_that_cannot_be_end_the_turn(stage: Stage, report: Any) -> None:
    with pytest.raises(OutpostError, match="usage") as caught:
        await stage.run(Agent("m", Harness(Reporting(report))))
    assert caught.value.code == "configuration"


async def test_a_receipt_may_be_a_plain_mapping(stage: Stage) -> None:
    result = await stage.run(Agent("m", Harness(Reporting({"input": 5, "cached": 2, "output": 1}))))
    assert result.usage == Usage(input=5, cached=2, output=1)


async def test_LIM_05_a_limit_is_seen_after_the_answer_that_went_over_it(stage: Stage) -> None:
    model = provider(calls(("echo", {"text": "x"}), tokens=usage(1, 0, 900)), says("never"))
    with pytest.raises(OutpostError) as caught:
        await stage.run(Agent("m", Harness(model, tools=[echo], limits=Limits(usage=UsageLimits(output=10)))))
    # What was spent is told, far above the limit; nothing more is asked for.
    assert caught.value.details["used"] == 900
    assert stage.receipts[-1].total.output == 900
    assert len(model.requests) == 1


def test_LIM_05_nobody_is_promised_more_than_that(pytestconfig: pytest.Config) -> None:
    told = (pytestconfig.rootpath / "docs" / "configuration.md").read_text()
    assert "no guarantee of what you spend" in told
    for page in (*(pytestconfig.rootpath / "docs").glob("*.md"), pytestconfig.rootpath / "README.md"):
        text = page.read_text().lower()
        for promise in ("limits hold", "never spend", "cannot spend", "guaranteed limit", "hard limit"):
            assert promise not in text, page.name


class Place(BaseModel):
    """What the tool takes."""

    path: str


async def _moves(stage: Stage, rewrite: Any) -> tuple[list[str], int, list[bool]]:
    """What the tool was called with, how often permissions looked, and which hook runs changed anything."""
    ran: list[str] = []
    looked = 0

    def resources(value: Any) -> Mapping[str, Any]:
        nonlocal looked
        looked += 1
        return {"paths": [value.path]}

    def execute(value: Place, _context: Any) -> str:
        ran.append(value.path)
        return "done"

    move = Tool("move", "Move.", Place, execute, resources=resources)
    subject = Agent(
        "m",
        Harness(
            provider(calls(("move", {"path": "src/a"})), says("done")),
            tools=[move],
            permissions=Permissions([PermissionRule("allow", paths=["src/**"])], default="deny"),
            hooks=[Hook("before-tool", rewrite)],
        ),
    )
    await stage.run(subject)
    return ran, looked, [event.changed for event in stage.of("hook")]


async def test_HOOK_05_the_same_object_handed_back_is_no_replacement(stage: Stage) -> None:
    assert await _moves(stage, lambda given: {"input": given.call.input}) == (["src/a"], 1, [False])


async def test_HOOK_05_an_equal_object_is_a_replacement_and_is_checked_again(stage: Stage) -> None:
    assert await _moves(stage, lambda _given: {"input": {"path": "src/a"}}) == (["src/a"], 2, [True])
    stage.events.clear()
    assert await _moves(stage, lambda _given: {"input": {"path": "other"}}) == ([], 2, [True])
    stage.events.clear()
    assert await _moves(stage, lambda _given: {"input": {"path": 7}}) == ([], 1, [True])


async def test_SEC_20_a_person_is_shown_what_would_run_after_a_hook_changed_it(stage: Stage) -> None:
    asked: list[Any] = []

    async def ask(question: Any) -> Any:
        asked.append(question)
        return "allow"

    tool = Tool(
        "write", "Write.", {"type": "object"}, lambda _v, _c: "ok", resources=lambda value: {"paths": [value["path"]]}
    )
    subject = Agent(
        "m",
        Harness(
            provider(calls(("write", {"path": "a"})), says("done")),
            tools=[tool],
            permissions=Permissions([PermissionRule("ask")]),
            hooks=[Hook("before-tool", lambda _given: {"input": {"path": "b"}})],
        ),
    )
    await stage.run(subject, ask=ask)
    assert [(one.input, one.resources.paths) for one in asked] == [({"path": "a"}, ("a",)), ({"path": "b"}, ("b",))]


async def test_SKILL_06_a_skill_is_guidance_and_no_gate(stage: Stage) -> None:
    """Loading one opens its own tools only; what is allowed besides is neither more nor less than before."""
    special = Tool("special", "Special.", {"type": "object"}, lambda _v, _c: "special")
    forbidden = Tool("forbidden", "Forbidden.", {"type": "object"}, lambda _v, _c: "no")
    skill = Skill("careful", "How to be careful.", "Never call echo.", tools=[special, forbidden])
    model = provider(
        calls(("echo", {"text": "before"})),
        calls(("load_skill", {"name": "careful"})),
        calls(("echo", {"text": "after"}), ("special", {}), ("forbidden", {})),
        says("done"),
    )
    rules = Permissions([PermissionRule("deny", tools=["forbidden"])])
    await stage.run(Agent("m", Harness(model, tools=[echo], skills=[skill], permissions=rules)))
    assert model.requests[1].messages[-1].results[0].content == "echo: before"
    after = model.requests[3].messages[-1].results
    # Its words hold nobody back, and its tools are under the same permissions as all others.
    assert [result.content for result in after[:2]] == ["echo: after", "special"]
    assert after[2].content.startswith("Denied: ")


def test_ROUTE_01_routing_belongs_to_the_built_in_harness() -> None:
    """An external agent keeps the model it was configured with: there is nothing to route it by."""
    agent = CliAgent(["agent", "--acp"], "its-own-model")
    assert agent.model is not None
    assert agent.model.name == "its-own-model"
    for option in ("routing", "harness"):
        with pytest.raises(OutpostError, match=option):
            CliAgent(["agent"], "its-own-model", **{option: None})
