"""Questions on a terminal, one at a time (PERM-10)."""

from __future__ import annotations

import asyncio
from typing import Any

from outpost_lsp.cli.questions import CHOICES, TerminalQuestions
from outpost_lsp.service.signals import Notice, Question


def question(tool: str, **given: Any) -> Question:
    return Question(run_id="r", agent="helper", subagent_id=None, tool=tool, input=given, reason="rule 1")


async def test_a_question_that_nobody_answers_is_denied_and_the_next_is_asked() -> None:
    shown: list[str | None] = []
    questions = TerminalQuestions(shown.append, patience_s=0.05)
    first, second = question("shell", command="rm x"), question("write_file", path="a")
    questions(first)
    questions(second)
    questions(Notice("info", "of no concern"))
    assert shown == [f'helper wants to use shell {{"command": "rm x"}} (rule 1)\n{CHOICES}']
    assert await first.wait() == "deny"
    assert await second.wait() == "deny"
    await asyncio.sleep(0)
    assert [text is None for text in shown] == [False, True, False, True]


async def test_a_withdrawn_question_is_not_asked_and_gives_way_to_the_next() -> None:
    shown: list[str | None] = []
    questions = TerminalQuestions(shown.append)
    first, second, third = question("a"), question("b"), question("c")
    for one in (first, second, third):
        questions(one)
    for one in (second, first):
        waiting = asyncio.ensure_future(one.wait())
        await asyncio.sleep(0)
        waiting.cancel()
    await asyncio.wait({asyncio.ensure_future(asyncio.sleep(0))})
    assert [text.split()[4] for text in shown if text] == ["a", "c"]
    assert questions.typed("y")
    assert await third.wait() == "allow"


async def test_a_line_without_a_question_is_none_of_its_business() -> None:
    questions = TerminalQuestions(lambda _text: None)
    assert not questions.typed("y")
    asked = question("a")
    questions(asked)
    questions.close()
    assert await asked.wait() == "deny"


async def test_after_the_end_of_the_input_a_question_is_denied_at_once() -> None:
    shown: list[str | None] = []
    questions = TerminalQuestions(shown.append)
    questions.close()
    late = question("shell", command="rm x")
    questions(late)
    assert await asyncio.wait_for(late.wait(), 5) == "deny"
    assert shown == []
