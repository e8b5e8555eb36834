"""What services, conversations and hooks of bad manners come to on a run's record (BOUND-04, CTX-11, CONV-04, CONV-06)."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from outpost_lsp.domain.run import Run
from outpost_lsp.errors import FAULT_CODES, FaultCode, OutpostError
from outpost_lsp.service.handle import RunHandle
from outpost_lsp.service.workspace import Workspace
from tests.service.conftest import Office, loopback
from tests.support.model_answers import Answer
from tests.support.model_server import ModelServer
from tests.support.repositories import RealRepository

FULL = {"error": {"code": "context_length_exceeded", "message": "This model's maximum context length is 8192 tokens."}}


async def ended(office: Office, workspace: Workspace, brief: str = "go", **options: Any) -> Run:
    if "conversation" in options:
        conversation = options.pop("conversation")
        handle = await office.outpost.continue_conversation(workspace, conversation, brief, **options)
    else:
        handle = await office.outpost.run_agent(workspace, "helper", brief)
    return await handle.wait()


def settings(server: ModelServer, **more: Any) -> dict[str, Any]:
    return loopback(server.base_url, agents={"helper": {"model": "main", "tools": ["files"], **more}})


@pytest.mark.parametrize("code", FAULT_CODES)
async def test_BOUND_04_a_fault_keeps_its_code_and_aborted_is_cancelled(
    office: Office, project: RealRepository, code: FaultCode
) -> None:
    workspace = await office.workspace(project)

    async def job(_handle: RunHandle) -> None:
        raise OutpostError(code, "it ended", {"step": 3})

    run = await office.outpost.live.start(workspace, "dispatch", "helper", "t", job).wait()
    assert run.status == ("cancelled" if code == "aborted" else "failed")
    assert run.error is not None
    assert (run.error.code, run.error.message, run.error.details) == (code, "it ended", {"step": 3})


@pytest.mark.parametrize(
    ("answer", "code", "words"),
    [
        (Answer(text="I will", stop="max-tokens"), "limit", "cut off by its output limit"),
        (Answer(text="no", stop="refusal"), "response", "the model refused"),
        (Answer(status=429, headers={"Retry-After": "900"}), "quota", "HTTP 429"),
        (Answer(status=401), "provider", "the key was refused"),
        (Answer(json=FULL), "provider", "maximum context length"),
        (Answer(status=400, json=FULL), "provider", "maximum context length"),
        (Answer(body="<html>", headers={"Content-Type": "text/html"}), "response", "text/html"),
    ],
)
async def test_BOUND_04_what_a_service_answers_ends_the_run_with_its_code_and_words(
    office: Office, project: RealRepository, answer: Answer, code: str, words: str
) -> None:
    with ModelServer([answer]) as server:
        run = await ended(office, await office.workspace(project, settings(server)))
    assert run.status == "failed"
    assert run.error is not None
    assert run.error.code == code
    assert words in run.error.message
    assert len(server.requests) == 1, "nothing is sent again as it was"


async def test_a_brief_larger_than_the_context_window_ends_with_what_to_do(
    office: Office, project: RealRepository
) -> None:
    with ModelServer([Answer(status=400, json=FULL, times=0)]) as server:
        run = await ended(office, await office.workspace(project, settings(server)), "word " * 200_000)
    assert run.error is not None
    assert run.error.details is not None
    assert run.error.details["reason"] == "context-length"
    assert len(server.requests) == 1
    assert len(run.title) < 200


async def test_a_run_that_was_cut_off_goes_on_and_hears_of_it(office: Office, project: RealRepository) -> None:
    """s06: nothing of the cut answer ran, and a continuation says so."""
    call = {"name": "read_file", "input": {"path": "a.py"}}
    with ModelServer([Answer(text="I will", calls=[call], stop="max-tokens"), "Understood."]) as server:
        workspace = await office.workspace(project, settings(server))
        run = await ended(office, workspace)
        assert run.conversation
        again = await ended(office, workspace, "go on", conversation=run.conversation)
        assert again.status == "succeeded"
        asked, cut, told, on = server.requests[1].json["messages"][-4:]
        assert (asked["role"], cut["content"], on["content"]) == ("user", "I will", "go on")
        assert cut["tool_calls"][0]["function"]["name"] == "read_file"
        assert told["tool_call_id"] == cut["tool_calls"][0]["id"]
        assert "Cut off" in told["content"]
        assert server.problems == []


async def test_CONV_04_a_conversation_of_a_newer_version_is_left_alone_and_says_so(
    office: Office, project: RealRepository
) -> None:
    with ModelServer(["one", "never"]) as server:
        workspace = await office.workspace(project, settings(server))
        run = await ended(office, workspace)
        path = workspace.conversations.path(run.conversation or "")
        first, _, rest = path.read_text().partition("\n")
        newer = json.dumps({**json.loads(first), "version": 7}) + "\n" + rest
        path.write_text(newer)
        again = await ended(office, workspace, "on", conversation=run.conversation)
        assert len(server.requests) == 1
    assert again.error is not None
    assert again.error.code == "session"
    assert "version 7 is not known" in again.error.message
    assert path.read_text() == newer


async def test_CONV_06_a_second_writer_is_told_who_holds_the_conversation(
    office: Office, project: RealRepository
) -> None:
    with ModelServer(["one", Answer(text="on and on", hang_after=1), "three"]) as server:
        workspace = await office.workspace(project, settings(server))
        run = await ended(office, workspace)
        first = await office.outpost.continue_conversation(workspace, run.conversation or "", "on")
        await server.until(lambda: len(server.requests) == 2)
        second = await ended(office, workspace, "me too", conversation=run.conversation)
        assert second.error is not None
        assert second.error.code == "conflict"
        assert f"conversation {run.conversation} is in use by process {os.getpid()}" in second.error.message
        assert "copy" in second.error.message
        # A copy disturbs nobody.
        copy = await ended(office, workspace, "aside", conversation=run.conversation, fork=True)
        assert copy.status == "succeeded"
        first.cancel()
        assert (await first.wait()).status == "cancelled"
    assert copy.conversation != run.conversation
