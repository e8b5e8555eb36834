"""MCP servers of an agent, with real servers over pipes and over HTTP (MCP rules)."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from outpost_lsp import (
    Agent,
    Harness,
    Instructions,
    McpServer,
    OutpostError,
    PermissionRule,
    Permissions,
    Subagent,
    ToolExecution,
    tool,
)
from outpost_lsp.dispatches.sandboxing import WorktreeSandboxProvider
from tests.harness.stage import Stage, agent, calls, provider, says
from tests.support.mcp_stdio_program import LONG_NAME

ROOT = Path(__file__).parents[2]
SUPPORT = ROOT / "tests" / "support"
STARTS_S = 120
"""Nobody waits that long for a server unless the machine is very busy."""


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    from outpost_lsp.storage.layout import Layout
    from tests.harness.stage import make_repository

    return Stage(make_repository(tmp_path / "repo"), Layout(tmp_path / "state", tmp_path / "cache"))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "said-to-the-server"


def real(log: Path, **options: Any) -> McpServer:
    options.setdefault("startup_timeout_s", STARTS_S)
    return McpServer(sys.executable, ["-m", "tests.support.mcp_stdio_program", str(log)], environment={"PYTHONPATH": str(ROOT), **options.pop("environment", {})}, **options)  # fmt: skip


def odd(mode: str, **options: Any) -> McpServer:
    options.setdefault("startup_timeout_s", STARTS_S)
    return McpServer(sys.executable, [str(SUPPORT / "mcp_odd_program.py"), mode], **options)


def said(log: Path) -> list[dict[str, Any]]:
    """What the server was sent, without the end."""
    lines = log.read_text().splitlines()
    return [json.loads(line) for line in lines if line != "<closed>"]


async def results(stage: Stage, servers: dict[str, McpServer], *requests: Any, **harness: Any) -> list[Any]:
    """Let an agent make these calls and give their results as it got them."""
    model = provider(calls(*requests), says("done"))
    await stage.run(Agent("m", Harness(model, mcp_servers=servers, **harness)))
    return list(model.requests[-1].messages[-1].results)


async def failure(stage: Stage, servers: dict[str, McpServer], **options: Any) -> OutpostError:
    """The fault of a turn whose servers do not start."""
    model = provider(says("never"))
    with pytest.raises(OutpostError) as caught:
        await stage.run(Agent("m", Harness(model, mcp_servers=servers, **options)))
    assert not model.requests
    return caught.value


def names(model: Any) -> list[str]:
    return [spec.name for spec in model.requests[0].tools]


# Declarations


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({}, "command"),
        ({"command": "x", "url": "http://localhost/"}, "command"),
        ({"command": "x", "arguments": ["${HOME}"]}, "arguments"),
        ({"command": "x", "arguments": "--flag"}, "arguments"),
        ({"command": "x", "environment": {"A": "a\0b"}}, "environment"),
        ({"command": "x", "environment": {"not a name": "a"}}, "environment"),
        ({"command": "x", "headers": {"A": "b"}}, "headers"),
        ({"url": "http://localhost/", "headers": {"A": "b\r\nC: d"}}, "headers"),
        ({"url": "http://localhost/", "headers": {"A b": "c"}}, "headers"),
        ({"url": "http://localhost/", "arguments": ["x"]}, "arguments"),
        ({"url": "ftp://localhost/"}, "url"),
        ({"url": "http://me:secret@localhost/"}, "url"),
        ({"url": "http://h/", "bearer_token_variable": "T", "headers": {"authorization": "x"}}, "headers"),
        ({"command": "x", "tools": {}}, "tools"),
        ({"command": "x", "tools": {"include": ["a", "a"]}}, "include"),
        ({"command": "x", "startup_timeout_s": 0}, "startup_timeout_s"),
        ({"command": "x", "oauth": True}, "oauth"),
    ],
)
def test_MCP_01_a_server_that_contradicts_itself_is_refused_by_field(options: dict[str, Any], field: str) -> None:
    with pytest.raises(OutpostError, match=field if options.get("tools") != {} else "include") as caught:
        McpServer(**options)
    assert caught.value.code == "configuration"
    assert "secret" not in caught.value.message


@pytest.mark.parametrize("name", ["", "a b", "x" * 33, "ä", 3])
def test_MCP_01_the_name_of_a_server_can_be_part_of_a_tool_s(name: Any) -> None:
    with pytest.raises(OutpostError, match="mcp_servers"):
        Harness(provider(), mcp_servers={name: McpServer("x")})


def test_MCP_01_a_harness_takes_servers_only() -> None:
    with pytest.raises(OutpostError, match="docs"):
        Harness(provider(), mcp_servers={"docs": {"command": "x"}})  # type: ignore[dict-item]


async def test_MCP_13_without_the_package_the_fault_names_the_extra(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in [name for name in sys.modules if name.startswith("outpost_lsp.tools.mcp_con")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "mcp_types", None)
    fault = await failure(stage, {"trial": odd("plain")})
    assert fault.code == "configuration"
    assert "pip install 'outpost-lsp[mcp]'" in fault.message


# Life


async def test_MCP_02_03_a_server_lives_in_the_worktree_for_one_turn_and_last_sees_a_closed_input(
    stage: Stage, log: Path
) -> None:
    (written,) = await results(stage, {"trial": real(log)}, ("mcp__trial__write_here", {"name": "made.txt"}))
    assert not written.is_error
    assert Path(written.content) != stage.repository
    assert not (stage.repository / "made.txt").exists()
    begun, told, listed, *_ = said(log)
    assert (begun["method"], begun["params"]["protocolVersion"]) == ("initialize", "2025-06-18")
    assert begun["params"]["clientInfo"]["name"] == "outpost"
    assert begun["params"]["capabilities"] == {}
    assert told["method"] == "notifications/initialized"
    assert listed["method"] == "tools/list"
    assert log.read_text().splitlines()[-1] == "<closed>"
    assert not stage.of("tool-output")


async def test_MCP_02_each_turn_starts_its_servers_anew(stage: Stage, log: Path) -> None:
    subject = agent(says("one"), says("two"), mcp_servers={"trial": real(log)})
    first = await stage.run(subject)
    await first.resume("more")
    assert [message["method"] for message in said(log)].count("initialize") == 2


async def test_MCP_02_a_subagent_starts_its_own(stage: Stage, log: Path) -> None:
    child = Agent("m", Harness(provider(calls(("mcp__mine__add", {"a": 1, "b": 2})), says("3")), mcp_servers={"mine": real(log)}))  # fmt: skip
    parent = provider(calls(("child", {"prompt": "add"})), says("done"))
    await stage.run(Agent("m", Harness(parent, tools=[Subagent("child", "Adds.", child)])))
    assert names(parent) == ["child"]
    assert child.harness.model_provider.requests[-1].messages[-1].results[0].content == "3"
    assert said(log)[0]["method"] == "initialize"


async def test_MCP_02_a_sandbox_without_live_input_is_refused(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    from outpost_lsp.sandbox.lease import HostLease

    monkeypatch.setattr(HostLease, "live_input", False)
    fault = await failure(stage, {"trial": odd("plain")})
    assert (fault.code, "live input" in fault.message) == ("configuration", True)


async def test_MCP_02_SEC_13_a_server_gets_the_sandbox_s_environment_and_what_was_named(
    stage: Stage, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "canary-key")
    model = provider(calls(("mcp__trial__environment", {})), says("done"))
    server = real(log, environment={"LITERAL": "as it stands"}, variables=["TOKEN"])
    sandboxes = WorktreeSandboxProvider(layout=stage.layout, environment={"PATH": os.environ["PATH"], "TOKEN": "t-1"})
    await stage.run(Agent("m", Harness(model, mcp_servers={"trial": server})), sandbox_provider=sandboxes)
    environment = json.loads(model.requests[-1].messages[-1].results[0].content)
    assert (environment["LITERAL"], environment["TOKEN"]) == ("as it stands", "t-1")
    assert "canary-key" not in environment.values()
    assert environment["HOME"] != os.environ["HOME"]


async def test_MCP_03_all_pages_of_the_tools_are_read(stage: Stage) -> None:
    model = provider(says("done"))
    await stage.run(Agent("m", Harness(model, mcp_servers={"odd": odd("pages")})))
    assert names(model) == [f"mcp__odd__t{n}" for n in range(4)]


async def test_MCP_03_a_list_without_end_is_a_fault(stage: Stage) -> None:
    assert (await failure(stage, {"odd": odd("endless")})).code == "response"


async def test_MCP_03_lines_that_are_no_messages_are_passed_over(stage: Stage) -> None:
    (result,) = await results(stage, {"odd": odd("junk")}, ("mcp__odd__t", {}))
    assert not result.is_error


# Tools


async def test_MCP_04_names_say_the_server_and_hold_only_what_a_tool_s_name_may(stage: Stage, log: Path) -> None:
    model = provider(calls(("mcp__my-docs__say_it_", {"text": "aloud"})), says("done"))
    await stage.run(Agent("m", Harness(model, mcp_servers={"my-docs": real(log)})))
    mark = hashlib.sha256(LONG_NAME.encode()).hexdigest()[:8]
    cut = next(name for name in names(model) if "long" in name)
    assert (len(cut), cut.endswith(f"_{mark}"), cut.startswith("mcp__my-docs__long_xxx")) == (64, True, True)
    assert "mcp__my-docs__say_it_" in names(model)
    assert model.requests[-1].messages[-1].results[0].content == "aloud"


async def test_MCP_04_whatever_a_tool_is_called_it_can_be_called(stage: Stage) -> None:
    model = provider(says("done"))
    await stage.run(Agent("m", Harness(model, mcp_servers={"odd": odd("names")})))
    assert len(set(names(model))) == 4
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in names(model))
    listed = names(model)
    found = await results(stage, {"odd": odd("names")}, *((name, {}, name) for name in listed))
    assert [json.loads(result.content.splitlines()[-1])["name"] for result in found] == [
        "na\u00efve / \u5de5\u5177", "", "\u202e" * 90, "mcp__odd__t",
    ]  # fmt: skip


@pytest.mark.parametrize("mode", ["malformed", "no-list", "nameless", "twice"])
async def test_MCP_10_a_list_of_tools_that_is_none_fails_the_turn(stage: Stage, mode: str) -> None:
    fault = await failure(stage, {"odd": odd(mode)})
    assert (fault.code, "odd" in fault.message) == ("response", True)


async def test_MCP_07_tools_that_change_meanwhile_are_the_servers_own_affair_until_the_next_turn(stage: Stage) -> None:
    first, second = await results(stage, {"odd": odd("changes")}, ("mcp__odd__t", {}), ("mcp__odd__t", {}))
    assert (first.is_error, second.is_error, second.content) == (None, True, "Unknown tool: t")


async def test_MCP_06_an_answer_that_is_none_is_a_tool_error(stage: Stage) -> None:
    (result,) = await results(stage, {"odd": odd("nonsense")}, ("mcp__odd__t", {}))
    assert result.is_error
    assert "malformed" in result.content


async def test_MCP_04_two_tools_that_would_have_one_name_are_refused(stage: Stage) -> None:
    fault = await failure(stage, {"odd": odd("collide")})
    assert (fault.code, "mcp__odd__a_b" in fault.message) == ("configuration", True)
    model = provider(says("done"))
    server = odd("collide", tools={"exclude": ["a.b"]})
    await stage.run(Agent("m", Harness(model, mcp_servers={"odd": server})))
    assert names(model) == ["mcp__odd__a_b"]


async def test_MCP_04_a_static_tool_with_the_name_of_a_server_s_is_a_duplicate(stage: Stage) -> None:
    @tool(name="mcp__odd__t", description="The same.")
    def same() -> str:
        return ""

    fault = await failure(stage, {"odd": odd("plain")}, tools=[same])
    assert (fault.code, "mcp__odd__t" in fault.message) == ("configuration", True)


async def test_MCP_05_only_what_is_included_is_offered(stage: Stage, log: Path) -> None:
    model = provider(says("done"))
    server = real(log, tools={"include": ["add", "slow"], "exclude": ["slow"]})
    await stage.run(Agent("m", Harness(model, mcp_servers={"trial": server})))
    assert [name for name in names(model) if name.startswith("mcp__")] == ["mcp__trial__add"]


async def test_MCP_05_including_what_the_server_lacks_is_refused(stage: Stage) -> None:
    fault = await failure(stage, {"odd": odd("plain", tools={"include": ["t", "absent"]})})
    assert (fault.code, "absent" in fault.message) == ("configuration", True)


async def test_MCP_05_permissions_see_the_full_name_and_a_repair_turn_has_none(stage: Stage) -> None:
    permissions = Permissions([PermissionRule("deny", tools=["mcp__odd__*"])], "allow")
    (denied,) = await results(stage, {"odd": odd("plain")}, ("mcp__odd__t", {}), permissions=permissions)
    assert (denied.is_error, denied.content.startswith("Denied")) == (True, True)


async def test_MCP_05_an_input_that_is_no_object_is_an_error_result(stage: Stage) -> None:
    (result,) = await results(stage, {"odd": odd("plain")}, ("mcp__odd__t", [1]))
    assert (result.is_error, "object" in result.content) == (True, True)


async def test_MCP_06_every_kind_of_block_becomes_text(stage: Stage, log: Path) -> None:
    many, failed, added = await results(
        stage,
        {"trial": real(log)},
        ("mcp__trial__many", {}),
        ("mcp__trial__fails", {}),
        ("mcp__trial__add", {"a": 2, "b": 3}),
    )
    assert many.content.splitlines() == [
        "words",
        "[image image/png, 5 bytes]",
        "embedded",
        "[resource memo://b x/y, 5 bytes]",
    ]
    assert (failed.is_error, "it does not work" in failed.content) == (True, True)
    assert (added.content, bool(added.is_error)) == ("5", False)


async def test_MCP_06_unknown_blocks_and_structured_content_become_json(stage: Stage) -> None:
    unknown, structured = await results(
        stage,
        {"odd": odd("plain"), "other": odd("structured")},
        ("mcp__odd__t", {"x": [1]}),
        ("mcp__other__t", {}),
    )
    first, second = unknown.content.splitlines()
    assert json.loads(first) == {"type": "hologram", "depth": 3}
    assert json.loads(second) == {"name": "t", "arguments": {"x": [1]}}
    assert json.loads(structured.content) == {"answer": 42}


async def test_MCP_06_a_large_result_is_cut_like_any_other(stage: Stage) -> None:
    (result,) = await results(stage, {"odd": odd("large")}, ("mcp__odd__t", {}))
    assert len(result.content) < 101_000
    assert stage.of("tool-result")[0].characters == 2_000_000


async def test_MCP_07_an_error_answer_goes_back_to_the_model(stage: Stage) -> None:
    results_of = await results(stage, {"odd": odd("error")}, ("mcp__odd__t", {}), ("mcp__odd__t", {}))
    assert [(result.is_error, result.content) for result in results_of] == [(True, "no such thing")] * 2


async def test_MCP_07_a_dead_server_is_a_process_fault_with_its_last_words_and_status(stage: Stage, log: Path) -> None:
    died, after = await results(stage, {"trial": real(log)}, ("mcp__trial__die", {}), ("mcp__trial__add", {}))
    for result in (died, after):
        assert result.is_error
        assert "status 7" in result.content
        assert result.content.rstrip(".").endswith("last words")
        assert len(result.content) < 4_300
    with pytest.raises(OutpostError) as caught:
        await results(
            stage, {"trial": real(log)}, ("mcp__trial__die", {}), tool_execution=ToolExecution(on_error="fail")
        )
    assert (caught.value.code, caught.value.details["status"]) == ("process", 7)


async def test_MCP_07_a_message_that_is_too_large_ends_the_connection(stage: Stage) -> None:
    overlong, after = await results(stage, {"odd": odd("overlong")}, ("mcp__odd__t", {}), ("mcp__odd__t", {}))
    assert (overlong.is_error, "more than" in overlong.content) == (True, True)
    assert after.is_error


async def test_MCP_08_a_call_that_took_too_long_is_cancelled_at_the_server(stage: Stage, log: Path) -> None:
    slow, added = await results(
        stage,
        {"trial": real(log)},
        ("mcp__trial__slow", {}),
        ("mcp__trial__add", {"a": 1, "b": 1}),
        tool_execution=ToolExecution(deadline_s=5),
    )
    assert (slow.is_error, "within 5 s" in slow.content) == (True, True)
    assert added.content == "2"
    sent = said(log)
    asked = next(message for message in sent if message.get("params", {}).get("name") == "slow")
    cancelled = [message["params"]["requestId"] for message in sent if message["method"] == "notifications/cancelled"]
    assert cancelled == [asked["id"]]


async def test_MCP_08_a_cancelled_turn_tells_the_server_and_stops_it(stage: Stage, log: Path) -> None:
    subject = agent(calls(("mcp__trial__slow", {})), mcp_servers={"trial": real(log)})
    running = asyncio.ensure_future(stage.run(subject))
    await until(lambda: log.exists() and '"slow"' in log.read_text())
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await until(lambda: log.read_text().endswith("<closed>\n"))
    assert said(log)[-1]["method"] == "notifications/cancelled"


async def test_MCP_09_a_server_may_ask_whether_we_are_there_and_nothing_else(stage: Stage) -> None:
    (result,) = await results(stage, {"odd": odd("asks")}, ("mcp__odd__t", {}))
    assert json.loads(result.content) == [
        ["ping", {}, None],
        ["roots/list", None, -32601],
        ["sampling/createMessage", None, -32601],
        ["nonsense/method", None, -32601],
    ]


# Starts that fail


@pytest.mark.parametrize(
    ("server", "code", "words"),
    [
        (odd("crash"), "process", "cannot begin"),
        (odd("refuses"), "response", "not today"),
        (odd("old"), "response", "1999-01-01"),
        (McpServer("no-such-program-here"), "process", "no-such-program-here"),
        (odd("plain", variables=["ABSENT"]), "configuration", "ABSENT"),
        (McpServer(url="http://127.0.0.1:1/mcp"), "response", "cannot be reached"),
        (McpServer(url="http://127.0.0.1:1/mcp", bearer_token_variable="ABSENT"), "configuration", "ABSENT"),
        (odd("silent", startup_timeout_s=0.5), "timeout", "0.5 s"),
    ],
)
async def test_MCP_10_a_server_that_does_not_start_fails_the_turn_and_the_others_are_stopped(
    stage: Stage, log: Path, server: McpServer, code: str, words: str
) -> None:
    fault = await failure(stage, {"good": real(log), "bad": server})
    assert (fault.code, words in fault.message, "bad" in fault.message) == (code, True, True)
    if server.command == "no-such-program-here":
        assert fault.details["status"] == 127
    listing = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert str(log) not in listing


# HTTP


@contextmanager
def http_server(log: Path, form: str) -> Iterator[str]:
    arguments = [sys.executable, "-m", "tests.support.mcp_http_program", str(log), form]
    with subprocess.Popen(arguments, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/mcp"
        finally:
            process.kill()


@pytest.mark.parametrize("form", ["json", "sse"])
async def test_MCP_11_a_server_over_http_answers_in_both_forms_and_its_session_is_ended(
    stage: Stage, log: Path, form: str
) -> None:
    with http_server(log, form) as url:
        server = McpServer(url=url, bearer_token_variable="TOKEN", headers={"X-Mine": "yes"})
        model = provider(calls(("mcp__web__add", {"a": 20, "b": 22}), ("mcp__web__fails", {})), says("done"))
        sandboxes = WorktreeSandboxProvider(layout=stage.layout, environment={"TOKEN": "right"})
        await stage.run(Agent("m", Harness(model, mcp_servers={"web": server})), sandbox_provider=sandboxes)
        added, failed = model.requests[-1].messages[-1].results
        assert (added.content, failed.is_error) == ("42", True)
    requests = [json.loads(line) for line in log.read_text().splitlines()]
    posts = [request for request in requests if request["method"] == "POST" and request["body"]]
    first, *later = posts
    assert json.loads(first["body"])["method"] == "initialize"
    assert "mcp-session-id" not in first["headers"]
    sessions = {request["headers"].get("mcp-session-id") for request in later}
    assert len(sessions) == 1
    assert sessions != {None}
    assert {request["headers"].get("mcp-protocol-version") for request in later} == {"2025-06-18"}
    assert {request["headers"]["x-mine"] for request in posts} == {"yes"}
    assert requests[-1]["method"] == "DELETE"
    assert requests[-1]["headers"]["mcp-session-id"] in sessions


async def test_MCP_10_a_401_at_the_start_is_a_response_fault_with_status_and_text(stage: Stage, log: Path) -> None:
    with http_server(log, "json") as url:
        fault = await failure(stage, {"web": McpServer(url=url, headers={"Authorization": "Bearer wrong-token"})})
    assert (fault.code, fault.details["status"]) == ("response", 401)
    assert "401" in fault.message
    assert "no such token here" in fault.message
    assert "wrong-token" not in fault.message


async def test_SEC_18_a_redirect_of_a_server_is_not_followed(stage: Stage, log: Path) -> None:
    with http_server(log, "json") as url:
        headers = {"Authorization": "Bearer right", "X-Redirect": "1"}
        fault = await failure(stage, {"web": McpServer(url=url, headers=headers)})
    assert (fault.code, "/mcp/" in fault.message) == ("response", True)
    assert not log.exists()


async def test_MCP_08_a_cancelled_call_over_http_is_told_too(stage: Stage, log: Path) -> None:
    with http_server(log, "sse") as url:
        (slow,) = await results(
            stage,
            {"web": McpServer(url=url, headers={"Authorization": "Bearer right"})},
            ("mcp__web__slow", {}),
            tool_execution=ToolExecution(deadline_s=5),
        )
        assert slow.is_error
    bodies = [json.loads(line)["body"] for line in log.read_text().splitlines()]
    assert any("notifications/cancelled" in body for body in bodies)


async def test_MCP_07_a_server_over_http_that_goes_away_is_a_response_fault(stage: Stage, log: Path) -> None:
    (died,) = await _with_http(stage, log, ("mcp__web__die", {}))
    assert (died.is_error, "cannot be reached" in died.content) == (True, True)


async def _with_http(stage: Stage, log: Path, *requests: Any) -> list[Any]:
    with http_server(log, "json") as url:
        server = McpServer(url=url, headers={"Authorization": "Bearer right"})
        return await results(stage, {"web": server}, *requests)


# Resources and prompts


async def test_MCP_12_resources_and_prompts_are_tools_of_the_agent(stage: Stage, log: Path) -> None:
    resources, memo, prompts, greeting, absent = await results(
        stage,
        {"trial": real(log), "odd": odd("plain")},
        ("mcp_list_resources", {}),
        ("mcp_read_resource", {"server": "trial", "uri": "memo://one"}),
        ("mcp_list_prompts", {"server": "trial"}),
        ("mcp_get_prompt", {"server": "trial", "name": "greet", "arguments": {"name": "Ada"}}),
        ("mcp_read_resource", {"server": "trial", "uri": "memo://absent"}),
    )
    assert json.loads(resources.content)["uri"] == "memo://one"
    assert memo.content == "the memo's text"
    assert json.loads(prompts.content)["name"] == "greet"
    assert greeting.content == "Greet Ada kindly."
    assert absent.is_error


async def test_MCP_12_a_server_without_them_adds_none(stage: Stage) -> None:
    model = provider(says("done"))
    await stage.run(Agent("m", Harness(model, mcp_servers={"odd": odd("plain")})))
    assert names(model) == ["mcp__odd__t"]


async def test_INSTR_01_instructions_may_use_a_server_s_prompt(stage: Stage, log: Path) -> None:
    async def greeting(context: Any) -> str:
        text: str = await context.mcp.prompt("trial", "greet", {"name": "Bob"})
        return text

    model = provider(says("done"))
    harness = Harness(model, instructions=Instructions(greeting), mcp_servers={"trial": real(log)})
    await stage.run(Agent("m", harness))
    assert model.requests[0].system == "Greet Bob kindly."


async def test_SCHEMA_04_the_schema_of_a_server_reaches_the_model_as_it_is(stage: Stage) -> None:
    model = provider(says("done"))
    await stage.run(Agent("m", Harness(model, mcp_servers={"odd": odd("plain")})))
    assert model.requests[0].tools[0].input_schema == {"type": "object", "if": {"weird": True}}


async def until(holds: Callable[[], bool]) -> None:
    with anyio.fail_after(STARTS_S):
        while not holds():
            await anyio.sleep(0.02)


def test_the_library_can_be_imported_without_the_package() -> None:
    code = "import sys, outpost_lsp; outpost_lsp.McpServer('x'); print('mcp' in sys.modules, 'httpx2' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.split() == ["False", "False"]
