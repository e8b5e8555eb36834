"""The custom tools, run as a process: a result, a refusal and a denial all go back to the model."""

from __future__ import annotations

from tests.examples.conftest import Run
from tests.support.model_answers import Answer
from tests.support.model_server import ModelServer


def test_the_tools_of_the_application_are_called_and_their_permissions_hold(run: Run) -> None:
    calls = [
        {"name": "count_words", "input": {"path": "docs/manual.md"}},
        {"name": "find_owner", "input": {"path": "docs/manual.md"}},
        {"name": "find_owner", "input": {"path": "validation.py"}},
        {"name": "find_owner", "input": {"path": "secret/plan.md"}},
        {"name": "find_owner", "input": {}},
    ]
    with ModelServer([Answer(calls=calls), "Three words, the writers own it."]) as server:
        ended = run("custom_tool/run.py", OPENAI_API_KEY="key", OPENAI_BASE_URL=server.base_url, MODEL_NAME="the-model")
    assert ended.status == 0, ended.errors
    assert not server.problems
    assert ended.lines[0] == "count_words said: docs/manual.md: 3 words"
    assert ended.lines[1] == "find_owner said: docs/manual.md belongs to the writers"
    assert ended.lines[2] == "find_owner failed: nobody owns validation.py"
    assert ended.lines[3].startswith("find_owner failed: Denied")
    assert ended.lines[4].startswith("find_owner failed: Invalid input for find_owner")
    assert ended.lines[5] == "Three words, the writers own it."
    tools = {tool["function"]["name"]: tool["function"] for tool in server.requests[0].json["tools"]}
    assert tools["count_words"]["description"] == "Count the words of a text file of the repository."
    assert list(tools["count_words"]["parameters"]["properties"]) == ["path"]
