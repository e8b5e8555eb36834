"""The routing program, run as a process against a loopback model service and a loopback router (scenario B)."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conformance.third_party import started
from tests.examples.conftest import Run
from tests.examples.programs import Ended
from tests.support.model_answers import Answer
from tests.support.model_server import ModelServer
from tests.support.repositories import RealRepository
from tests.support.system_one_server import SystemOneServer, answer, http, routed

PROGRAM = "routing/run.py"


def model_answers() -> list[Answer]:
    call = {"name": "read_file", "input": {"path": "validation.py"}}
    usage = {"input": 4, "output": 2}
    return [Answer(calls=[call], usage=usage), Answer(text="It is corrected.", usage=usage)]


def run_with(run: Run, models: ModelServer, router_url: str, *arguments: str, **more: str) -> Ended:
    return run(
        PROGRAM,
        *arguments,
        OPENAI_API_KEY="key",
        OPENAI_BASE_URL=models.base_url,
        SYSTEM_ONE_BASE_URL=router_url,
        FAST_MODEL="small",
        DEEP_MODEL="large",
        **more,
    )


def models_of(server: ModelServer) -> list[tuple[str, int]]:
    return [(request.json["model"], request.json["max_output_tokens"]) for request in server.requests]


def test_each_step_takes_the_model_of_its_route(run: Run) -> None:
    replies = [answer(routed("fast", 0.9)), answer(routed("deep", 0.95))]
    with ModelServer(model_answers()) as models, SystemOneServer(replies) as router:
        ended = run_with(run, models, router.base_url)
    assert ended.status == 0, ended.errors
    assert not models.problems
    assert ended.lines[:2] == ["step 1 fast small selected 0.9", "step 2 deep large selected 0.95"]
    assert models_of(models) == [("small", 2_000), ("large", 8_000)]
    # Two model requests and two router requests, each counted once.
    assert ended.lines[2:] == ["It is corrected.", "32 tokens in, 10 tokens out"]
    assert len(router.requests) == 2
    assert "authorization" not in router.requests[0].headers


def test_the_router_sees_the_whole_default_state_of_each_step(run: Run) -> None:
    with ModelServer(model_answers()) as models, SystemOneServer([answer(routed("fast"))]) as router:
        run_with(run, models, router.base_url, "Correct", "the", "validation")
    first, second = (request.json for request in router.requests)
    assert first["model"] == "auto"
    assert set(first["state"]) == {"system", "messages", "tools", "step", "model"}
    assert (first["state"]["step"], first["state"]["model"]) == (1, "large")
    assert (second["state"]["step"], second["state"]["model"]) == (2, "small")
    assert "Correct the validation" in json.dumps(first["state"]["messages"])
    assert "return len(text) > 0" in json.dumps(second["state"]["messages"])
    assert {tool["name"] for tool in first["state"]["tools"]} >= {"read_file", "edit_file"}
    assert first["questions"]["route"]["criteria"] == {"fast": "Routine tools", "deep": "Reasoning or repairs"}


def test_the_focused_routing_sends_its_own_state_and_keeps_everything_else(run: Run) -> None:
    with ModelServer(model_answers()) as models, SystemOneServer([answer(routed("fast", 0.84))]) as router:
        ended = run_with(run, models, router.base_url, "--focused", "Correct it")
    assert ended.status == 0, ended.errors
    assert router.requests[0].json["state"] == {"step": 1, "activeModel": "large", "recentText": ["Correct it"]}
    assert set(router.requests[1].json["state"]) == {"step", "activeModel", "recentText"}
    assert ended.lines[0] == "step 1 deep large confidence 0.84"


def test_doubt_takes_the_deep_model(run: Run) -> None:
    with ModelServer(model_answers()) as models, SystemOneServer([answer(routed("fast", 0.84))]) as router:
        ended = run_with(run, models, router.base_url)
    assert ended.lines[0] == "step 1 deep large confidence 0.84"
    assert models_of(models)[0] == ("large", 8_000)


def test_a_router_that_is_down_takes_the_deep_model_and_leaves_the_usage_incomplete(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with ModelServer(model_answers()) as models:
        ended = run_with(run, models, f"http://127.0.0.1:{port}/v1")
    assert ended.status == 0, ended.errors
    assert ended.lines[0] == "step 1 deep large unavailable None"
    assert models_of(models) == [("large", 8_000)] * 2
    assert ended.lines[-1] == "8 tokens in, 4 tokens out at least"


def test_a_router_that_answers_429_fails_the_dispatch_before_any_model_request(run: Run) -> None:
    with ModelServer(model_answers()) as models, SystemOneServer([http(b"", 429)]) as router:
        ended = run_with(run, models, router.base_url)
    assert ended.status == 1
    assert "429" in ended.errors
    assert len(router.requests) == 1
    assert models.requests == []


@pytest.mark.parametrize(("variable", "names"), [("FAST_MODEL", "name"), ("SYSTEM_ONE_MODEL", "model")])
def test_an_empty_name_is_refused_when_the_routing_is_declared(run: Run, variable: str, names: str) -> None:
    with ModelServer(model_answers()) as models, SystemOneServer() as router:
        given = {
            "OPENAI_API_KEY": "key",
            "OPENAI_BASE_URL": models.base_url,
            "SYSTEM_ONE_BASE_URL": router.base_url,
            "FAST_MODEL": "small",
            "DEEP_MODEL": "large",
            variable: "",
        }
        ended = run(PROGRAM, **given)
    assert ended.status == 1
    assert "OutpostError" in ended.errors
    assert names in ended.errors
    assert router.requests == models.requests == []


@pytest.fixture
def mock() -> Iterator[dict[str, str]]:
    with started("serve_jevcompat.py") as addresses:
        yield addresses


def test_the_program_runs_with_the_mock_of_jevcompat(run: Run, mock: dict[str, str]) -> None:
    with ModelServer(model_answers()) as models:
        ended = run_with(run, models, mock["clean"], SYSTEM_ONE_MODEL="jev-latest")
    assert ended.status == 0, ended.errors
    routes = [line.split() for line in ended.lines[:2]]
    assert [(words[0], words[1]) for words in routes] == [("step", "1"), ("step", "2")]
    assert all(words[4] in ("selected", "confidence") for words in routes)
    assert [name for name, _ in models_of(models)] == [words[3] for words in routes]
    assert "at least" not in ended.lines[-1]


@pytest.mark.parametrize(("fast", "choice", "reason"), [(0.99, "fast", "selected"), (0.9, "deep", "confidence")])
def test_the_program_runs_with_the_server_of_laya(run: Run, fast: float, choice: str, reason: str) -> None:
    # Laya's confidence is an entropy: 0.9 for one of two options is 0.53 there, and falls back.
    with (
        started("serve_laya.py", environment={"STUB_FAST": str(fast)}) as base_url,
        ModelServer(model_answers()) as models,
    ):
        ended = run_with(run, models, base_url)
    assert ended.status == 0, ended.errors
    words: list[Any] = ended.lines[0].split()
    assert (words[2], words[4]) == (choice, reason)
    assert float(words[5]) == pytest.approx({0.99: 0.919, 0.9: 0.531}[fast], abs=0.001)


def test_a_state_that_grows_too_long_for_laya_ends_the_run_with_the_remedy_and_a_focused_one_goes_on(
    run: Run, repository: RealRepository
) -> None:
    repository.write("validation.py", "# a long comment\n" * 4_000)
    with started("serve_laya.py") as base_url:
        with ModelServer(model_answers()) as models:
            ended = run_with(run, models, base_url)
        assert ended.status == 1
        assert "413" in ended.errors
        assert "reduced state" in ended.errors
        assert len(models.requests) == 1
        with ModelServer(model_answers()) as models:
            ended = run_with(run, models, base_url, "--focused")
        assert ended.status == 0, ended.errors
        assert "It is corrected." in ended.lines
