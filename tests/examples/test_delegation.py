"""The delegation program, run as a process against a loopback model service (scenario A)."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.examples.conftest import Run
from tests.examples.programs import EXAMPLES
from tests.support.model_answers import Answer
from tests.support.model_server import ModelServer
from tests.support.repositories import RealRepository

PROGRAM = "delegation/run.py"
COORDINATOR = {"contains": "Have the validation code reviewed"}
REVIEWER = {"contains": "Inspect files and report findings"}


def asks_for_review(**more: Any) -> Answer:
    call = {"name": "review", "input": {"prompt": "Look at validation.py"}}
    return Answer(calls=[call], usage={"input": 4, "output": 2}, when=COORDINATOR, **more)


def reads(**more: Any) -> Answer:
    call = {"name": "read_file", "input": {"path": "validation.py"}}
    return Answer(calls=[call], usage={"input": 4, "output": 2}, when={**REVIEWER, "results": 0}, **more)


def reports(output: int = 2) -> Answer:
    text = "valid() accepts blanks."
    return Answer(text=text, usage={"input": 4, "output": output}, when={**REVIEWER, "results": 1})


def concludes(output: int = 2) -> Answer:
    text = "Risk: blanks are accepted."
    return Answer(text=text, usage={"input": 4, "output": output}, when={**COORDINATOR, "results": 1})


def variables(server: ModelServer) -> dict[str, str]:
    return {"OPENAI_API_KEY": "key", "OPENAI_BASE_URL": server.base_url, "MODEL_NAME": "the-model"}


def of_agent(server: ModelServer, mark: dict[str, str]) -> list[Any]:
    return [request.json for request in server.requests if mark["contains"] in request.body.decode()]


def test_the_answer_is_the_coordinators_and_the_usage_includes_the_reviewer(
    run: Run, repository: RealRepository
) -> None:
    before = repository.git("status", "--porcelain")
    with ModelServer([reads(), reports(), concludes(), asks_for_review()]) as server:
        ended = run(PROGRAM, **variables(server))
    assert ended.status == 0, ended.errors
    assert not server.problems
    assert not server.unanswered
    assert "Risk: blanks are accepted." in ended.lines
    assert ended.lines[-1] == "16 tokens in, 8 tokens out"
    assert repository.git("status", "--porcelain") == before


def test_observers_see_the_review_start_and_finish_under_one_id(run: Run) -> None:
    with ModelServer([reads(), reports(), concludes(), asks_for_review()]) as server:
        ended = run(PROGRAM, **variables(server))
    started, finished = (re.fullmatch(r"review (started|finished) (\S+)", line) for line in ended.lines[:2])
    assert started is not None
    assert finished is not None
    assert (started[1], finished[1]) == ("started", "finished")
    assert started[2] == finished[2]


def test_the_first_request_of_the_reviewer_holds_its_instructions_and_the_prompt_only(run: Run) -> None:
    with ModelServer([reads(), reports(), concludes(), asks_for_review()]) as server:
        run(PROGRAM, **variables(server))
    first = of_agent(server, REVIEWER)[0]
    assert first["model"] == "the-model"
    assert first["instructions"] == "Inspect files and report findings. Do not edit files."
    assert len(first["input"]) == 1
    assert "Look at validation.py" in json.dumps(first["input"])
    assert "Have the validation code reviewed" not in json.dumps(first)
    assert {tool["name"] for tool in first["tools"]} == {"read_file", "list_files"}


def test_the_reviewer_sees_the_repository_as_it_stands(run: Run, repository: RealRepository) -> None:
    repository.write("validation.py", "def valid(text):\n    return bool(text.strip())  # not committed\n")
    with ModelServer([reads(), reports(), concludes(), asks_for_review()]) as server:
        run(PROGRAM, **variables(server))
    assert "not committed" in json.dumps(of_agent(server, REVIEWER)[1])


def test_2001_output_tokens_in_the_reviewer_are_a_tool_error_and_the_coordinator_goes_on(run: Run) -> None:
    with ModelServer([reads(), reports(output=2_000), concludes(), asks_for_review()]) as server:
        ended = run(PROGRAM, **variables(server))
    assert ended.status == 0, ended.errors
    assert [line.split()[1] for line in ended.lines[:2]] == ["started", "failed"]
    assert "Risk: blanks are accepted." in ended.lines
    assert ended.lines[-1] == "16 tokens in, 2006 tokens out"
    assert "2000" in json.dumps(of_agent(server, COORDINATOR)[1]["input"])


def test_over_5000_output_tokens_in_total_fail_the_dispatch(run: Run) -> None:
    with ModelServer([reads(), reports(), concludes(output=4_995), asks_for_review()]) as server:
        ended = run(PROGRAM, **variables(server))
    assert ended.status == 1
    assert "OutpostError" in ended.errors
    assert "5000" in ended.errors
    assert "Risk" not in ended.output


def test_an_instruction_sent_with_the_run_id_reaches_the_reviewer_only(run: Run) -> None:
    program = str(Path(__file__).with_name("steer_reviewer.py"))
    with ModelServer([reads(), reports(), concludes(), asks_for_review()]) as server:
        ended = run(program, PYTHONPATH=str(EXAMPLES / "delegation"), **variables(server))
    assert ended.status == 0, ended.errors
    assert ended.lines == ["steered True", "injected", "Risk: blanks are accepted."]
    told = [json.dumps(request) for request in of_agent(server, REVIEWER)]
    assert sum("Mind the blanks." in request for request in told) >= 1
    assert not any("Mind the blanks." in json.dumps(request) for request in of_agent(server, COORDINATOR))


def test_a_missing_key_is_named(run: Run) -> None:
    ended = run(PROGRAM, MODEL_NAME="m")
    assert ended.status == 1
    assert "OPENAI_API_KEY" in ended.errors


@pytest.mark.parametrize("status", [401, 500])
def test_a_service_that_refuses_ends_the_program_with_its_fault(run: Run, status: int) -> None:
    with ModelServer([Answer(status=status, times=0)]) as server:
        ended = run(PROGRAM, **variables(server))
    assert ended.status == 1
    assert str(status) in ended.errors
