"""Scenario A through the language server: a coordinator, its reviewer, and a service that speaks all three wire forms."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from outpost_lsp.protocol.commands import COMMANDS
from outpost_lsp.protocol.notifications import NOTIFICATIONS
from tests.lsp.conftest import settings_for
from tests.lsp.server_process import ServerProcess, running_server
from tests.support.model_answers import Answer
from tests.support.model_server import ModelServer
from tests.support.repositories import RealRepository

BRIEF = "Have the validation code reviewed, then list its risks."
PROMPT = "Look at src/main.py and name what is wrong."
INSTRUCTIONS = "Inspect files and report findings. Do not edit files."
COORDINATOR = {"contains": "Have the validation code reviewed"}
REVIEWER = {"contains": "Inspect files and report findings"}
ADVICE = "Mind the blanks."


def settings(service: ModelServer, api: str = "chat", **more: Any) -> dict[str, Any]:
    agents = {
        "reviewer": {
            "instructions": INSTRUCTIONS,
            "tools": ["files"],
            "limits": {"maxSteps": 6, "usage": {"output": 2000}},
        },
        "coordinator": {
            "tools": [],
            "subagents": ["reviewer"],
            "limits": {"maxSteps": 8, "maxDelegationDepth": 1, "usage": {"output": 5000}},
        },
    }
    return settings_for(service, api, agents=agents, **more)


def script(*, reported: int = 2, concluded: int = 2, hold: str = "") -> list[Answer]:
    """What the service says: two requests of each agent, each of 4 tokens in and, where not said, 2 out."""

    def used(output: int = 2) -> dict[str, int]:
        return {"input": 4, "cached": 1, "output": output}

    read = {"name": "read_file", "input": {"path": "src/main.py"}}
    delegate = {"name": "reviewer", "input": {"prompt": PROMPT}}
    return [
        Answer(calls=[read], usage=used(), when={**REVIEWER, "results": 0}, hold=hold),
        Answer(text="Blanks count as valid.", usage=used(reported), when={**REVIEWER, "results": 1}),
        Answer(calls=[delegate], usage=used(), when={**COORDINATOR, "results": 0}),
        Answer(text="Risk: blanks are accepted.", usage=used(concluded), when={**COORDINATOR, "results": 1}),
    ]


def without_writes(usage: dict[str, Any]) -> dict[str, Any]:
    """Only Messages says how much was written to a cache."""
    return {name: count for name, count in usage.items() if name != "cacheCreated"}


def requests_of(service: ModelServer, mark: dict[str, str]) -> list[str]:
    return [request.body.decode() for request in service.requests if mark["contains"] in request.body.decode()]


def told(server: ServerProcess, method: str) -> list[Any]:
    found = server.all(method)
    for params in found:
        NOTIFICATIONS[method].params.model_validate(params)
    return found


def records(state: Path, conversation: str) -> list[Any]:
    [file] = state.rglob(f"{conversation}.jsonl")
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()]


@pytest.mark.parametrize("api", ["responses", "chat", "messages"])
async def test_scenario_A_a_coordinator_and_its_reviewer(
    api: str, repository: RealRepository, service: ModelServer, tmp_path: Path
) -> None:
    """SUB-10, -19, -50, -53, -60, -61, -63, -68, STEER-01, TBUD-01 in the wire form `api`."""
    state = tmp_path / "state"
    service.add(*script(hold="the review"))
    async with running_server(environment={"XDG_STATE_HOME": str(state)}) as server:
        await server.initialize(repository.path, options={"settings": settings(service, api)})
        asked = server.begin_command("outpost.coordinate", {"brief": BRIEF, "wait": True})
        started = await server.notification("$/outpost/subagent")
        assert started["status"] == "started"
        steered = server.begin_command(
            "outpost.steer", {"runId": started["runId"], "text": ADVICE, "subagent": started["id"]}
        )
        await service.until(lambda: len(service.requests) == 2)
        await server.command("outpost.agents")  # What is sent later is answered later: the text has arrived by now.
        service.release("the review")
        assert (await server.answer_to(steered))["result"] == {"delivery": "injected"}
        run = (await server.answer_to(asked))["result"]["run"]
        COMMANDS["outpost.coordinate"].result.model_validate({"run": run})
        assert not service.problems
        assert not service.unanswered

        assert (run["status"], run["text"]) == ("succeeded", "Risk: blanks are accepted.")
        assert without_writes(run["usage"]) == {"input": 16, "cached": 4, "output": 8, "complete": True}
        started, finished = told(server, "$/outpost/subagent")
        assert started["status"] == "started"
        assert finished == {**started, "status": "finished"}
        assert started["name"] == "reviewer"
        assert "parentId" not in started

        used = told(server, "$/outpost/usage")
        assert [(one["agent"], one.get("subagentId"), one["step"], one["total"]["output"]) for one in used] == [
            ("coordinator", None, 1, 2),
            ("reviewer", started["id"], 1, 4),
            ("reviewer", started["id"], 2, 6),
            ("coordinator", None, 2, 8),
        ]
        assert [without_writes(one["delta"]) for one in used] == [
            {"input": 4, "cached": 1, "output": 2, "complete": True}
        ] * 4
        chain = used[2]["budgets"]
        assert [(part["agent"], part["limits"], part["used"]["output"]) for part in chain] == [
            ("coordinator", {"output": 5000}, 6),
            ("reviewer", {"output": 2000}, 4),
        ]
        assert [part["agent"] for part in used[3]["budgets"]] == ["coordinator"]

        first, second = requests_of(service, REVIEWER)
        assert PROMPT in first
        assert BRIEF not in first
        assert "reviewer" not in {tool.get("name") for tool in json.loads(first)["tools"]}, "it cannot delegate"
        assert ADVICE in second
        assert not any(ADVICE in body for body in requests_of(service, COORDINATOR))

        # The child's conversation names its parent, and goes on alone.
        head, *_ = records(state, started["conversation"])
        assert head["parentConversation"] == run["conversation"]
        assert head["parentCallId"] == started["callId"]
        service.add(Answer(text="I said: blanks.", when=REVIEWER))
        going_on = {"conversation": started["conversation"], "brief": "What did you say?", "wait": True}
        alone = (await server.command("outpost.continue", going_on))["run"]
        assert (alone["agent"], alone["status"], alone["text"]) == ("reviewer", "succeeded", "I said: blanks.")
        assert "Blanks count as valid." in requests_of(service, REVIEWER)[-1]
        assert len(requests_of(service, COORDINATOR)) == 2

        # Resuming the parent uses the recorded result; the child does not run again (SUB-54).
        service.add(Answer(text="As I said.", when=COORDINATOR))
        again = {"conversation": run["conversation"], "brief": "And the worst?", "wait": True}
        assert (await server.command("outpost.continue", again))["run"]["text"] == "As I said."
        assert "Blanks count as valid." in requests_of(service, COORDINATOR)[-1]
        assert len(requests_of(service, REVIEWER)) == 3
    assert repository.git("status", "--porcelain").strip() == ""


@pytest.mark.parametrize(
    ("reported", "concluded", "child", "limit"),
    [
        (1_998, 2, "finished", None),
        (1_999, 2, "failed", None),
        (2, 4_994, "finished", None),
        (2, 4_995, "finished", 5_000),
        (5_000, 2, "failed", 5_000),
    ],
)
async def test_TBUD_07_08_limits_of_both_agents_hold_to_the_token(
    reported: int, concluded: int, child: str, limit: int | None, repository: RealRepository, service: ModelServer
) -> None:
    service.add(*script(reported=reported, concluded=concluded))
    async with running_server() as server:
        await server.initialize(repository.path, options={"settings": settings(service)})
        run = (await server.command("outpost.coordinate", {"brief": BRIEF, "wait": True}))["run"]
        assert [one["status"] for one in told(server, "$/outpost/subagent")] == ["started", child], run
        asked = requests_of(service, COORDINATOR)
        if limit is None:
            assert (run["status"], run["text"]) == ("succeeded", "Risk: blanks are accepted.")
            assert run["usage"]["output"] == reported + concluded + 4
            if child == "failed":
                assert "reviewer exceeded its limit of 2000 output tokens: 2001 used" in asked[1]
            return
        spent = reported + 4 + (concluded if reported < limit else 0)
        assert run["status"] == "failed"
        assert run["error"]["code"] == "limit"
        assert run["usage"]["output"] == spent
        for word in ("coordinator", "output", str(limit), str(spent)):
            assert word in run["error"]["message"].replace(",", "")
        assert len(asked) == (2 if reported < limit else 1), "no further request is made"


async def test_SUB_16_cancelling_coordinators_leaves_no_socket_and_no_process(
    repository: RealRepository, service: ModelServer, tmp_path: Path
) -> None:
    """One child is in a model request and one in a shell command; both runs are cancelled, and the server lives on."""
    mark = tmp_path / "started"
    agents = {
        "asking": {"instructions": "ASKING", "tools": []},
        "running": {"instructions": "RUNNING", "tools": ["shell"]},
        "first": {"subagents": ["asking"], "tools": []},
        "second": {"subagents": ["running"], "tools": []},
    }
    given = settings_for(service, agents=agents, sandbox={"shell": "unconfined"}, runs={"concurrency": 2})
    command = f"echo $$ > {mark}; sleep 600 & echo $! >> {mark}; touch {mark}.done; wait"
    service.add(
        Answer(calls=[{"name": "shell", "input": {"command": command}}], when={"contains": "RUNNING"}),
        Answer(text="on and on", hang_after=2, when={"contains": "ASKING"}),
        Answer(calls=[{"name": "asking", "input": {"prompt": "x"}}], when={"contains": "begin the first"}),
        Answer(calls=[{"name": "running", "input": {"prompt": "x"}}], when={"contains": "begin the second"}),
    )
    async with running_server() as server:
        await server.initialize(repository.path, options={"settings": given, "trusted": True})
        for agent in ("first", "second"):
            await server.command("outpost.dispatch", {"agent": agent, "brief": f"begin the {agent}"})
        await service.until(lambda: len(service.requests) == 4)
        await _until(lambda: Path(f"{mark}.done").exists())
        processes = [int(word) for word in mark.read_text().split()]
        assert len(processes) == 2
        assert all(_is_alive(pid) for pid in processes)
        for run in (await server.command("outpost.runs"))["runs"]:
            assert await server.command("outpost.cancel", {"runId": run["id"]}) == {"cancelled": True}
        await server.wait_for(lambda _: len(_cancelled(server)) == 2)
        await service.until(lambda: service.left_early == 1)
        await _until(lambda: not any(_is_alive(pid) for pid in processes))
        assert len(service.requests) == 4, "nobody asks any more"
        assert "failed" not in {one["status"] for one in told(server, "$/outpost/subagent")}, "SUB-67"
        await server.shut_down()
    await service.until(lambda: service.open_connections == 0)


def _cancelled(server: ServerProcess) -> set[str]:
    return {one["run"]["id"] for one in server.all("$/outpost/run") if one["run"]["status"] == "cancelled"}


async def _until(condition: Any) -> None:
    import asyncio

    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False
