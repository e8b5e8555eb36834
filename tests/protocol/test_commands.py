"""Arguments of commands: strict, and every refusal names the field."""

from __future__ import annotations

from typing import Any

import pytest

from outpost_lsp.protocol import names
from outpost_lsp.protocol.commands import COMMANDS, ArgumentsError, ReviewParams, SteerParams, parse
from outpost_lsp.protocol.notifications import NOTIFICATIONS


def test_the_table_holds_the_names_that_are_promised() -> None:
    assert tuple(COMMANDS) == names.COMMANDS
    assert tuple(NOTIFICATIONS) == names.NOTIFICATIONS


@pytest.mark.parametrize("arguments", [None, [], [None], [{}]])
def test_no_argument_and_null_mean_an_empty_object(arguments: Any) -> None:
    assert parse("outpost.review", arguments) == ReviewParams()


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("outpost.review", [{}, {}], "arguments[1]"),
        ("outpost.review", [[]], "arguments[0]"),
        ("outpost.review", ["x"], "a string"),
        ("outpost.review", [3], "a number"),
        ("outpost.review", [True], "a boolean"),
        ("outpost.review", {"scope": "file"}, "arguments"),
        ("outpost.review", [{"scope": "everything"}], "scope"),
        ("outpost.review", [{"colour": 1}], "colour: there is no such field"),
        ("outpost.review", [{"wait": "yes"}], "wait"),
        ("outpost.review", [{"wait": 1}], "wait"),
        ("outpost.review", [{"scope": "file"}], "uri"),
        ("outpost.review", [{"scope": "selection", "uri": "file:///a"}], "range"),
        ("outpost.review", [{"scope": "commit"}], "revision"),
        ("outpost.review", [{"base": "main"}], "base"),
        ("outpost.review", [{"agent": " "}], "agent: is blank"),
        (
            "outpost.review",
            [{"scope": "selection", "uri": "file:///a", "range": {"start": {"line": -1, "character": 0}}}],
            "range.start.line",
        ),
        ("outpost.dispatch", [{"agent": "a"}], "brief: is missing"),
        ("outpost.cancel", [{}], "runId: is missing"),
        ("outpost.cancel", [{"run_id": "x"}], "runId: is missing"),
        ("outpost.runs", [{"limit": 0}], "limit"),
        ("outpost.runs", [{"limit": "3"}], "limit"),
        ("outpost.runs", [{"status": "done"}], "status"),
        ("outpost.dismiss", [{"findingId": "f", "until": "tomorrow"}], "until"),
        ("outpost.apply", [{"runId": "r", "paths": "a"}], "paths"),
        ("outpost.continue", [{"conversation": "c", "brief": "b", "limits": {"maxSteps": 0}}], "limits.maxSteps"),
        ("outpost.agents", [{"uri": "x"}], "uri: there is no such field"),
    ],
)
def test_what_is_refused_is_named(name: str, arguments: Any, words: str) -> None:
    with pytest.raises(ArgumentsError) as refused:
        parse(name, arguments)
    assert words in str(refused.value)


def test_a_steer_without_subagent_is_not_one_for_the_main_loop() -> None:
    anyone = parse("outpost.steer", [{"runId": "r", "text": "t"}])
    main = parse("outpost.steer", [{"runId": "r", "text": "t", "subagent": None}])
    assert isinstance(anyone, SteerParams)
    assert "subagent" not in anyone.model_fields_set
    assert "subagent" in main.model_fields_set
