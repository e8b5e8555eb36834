"""A finding is handed to an agent; what it changes waits to be applied."""

from __future__ import annotations

import pytest

from outpost_lsp.domain.anchor import Anchor, find_quote
from outpost_lsp.domain.finding import Finding, Span, Suggestion, TextReplacement, fingerprint
from outpost_lsp.domain.run import ReviewScope
from outpost_lsp.errors import OutpostError
from outpost_lsp.models.rule_based.assignment import fix_order
from outpost_lsp.service import results
from outpost_lsp.service.dispatches import fix_brief, fix_order_of
from tests.service.conftest import Office, loopback
from tests.support.model_server import ModelServer
from tests.support.repositories import RealRepository

TEXT = "first = 1\nif first is 1:\n    print('one')\n"


def finding(quote: str, *edits: tuple[int, int, int, int, str]) -> Finding:
    anchor = find_quote(TEXT, quote)
    assert isinstance(anchor, Anchor)
    replacements = tuple(
        TextReplacement(span=Span(start_line=a, start_character=b, end_line=c, end_character=d), text=text)
        for a, b, c, d, text in edits
    )
    return Finding(
        id="r-1",
        run_id="r",
        agent="reviewer",
        path="a.py",
        span=anchor.span,
        severity="error",
        code="is-literal",
        title="Compared by identity",
        detail="Use `==`.",
        quote=anchor.text,
        suggestion=Suggestion(title="Fix", edits=replacements) if replacements else None,
        fingerprint=fingerprint("a.py", "is-literal", anchor.text, 0),
    )


def test_an_order_holds_the_quote_with_its_edits_done() -> None:
    order = fix_order_of(finding("if first is 1:", (1, 9, 1, 11, "==")), TEXT)
    assert (order.quote, order.replacement, order.line) == ("if first is 1:", "if first == 1:", 2)


def test_an_order_grows_to_cover_edits_outside_the_quote() -> None:
    order = fix_order_of(finding("first is 1", (0, 0, 0, 5, "number"), (1, 3, 1, 8, "number")), TEXT)
    assert order.quote == "first = 1\nif first is 1"
    assert order.replacement == "number = 1\nif number is 1"
    assert order.line == 1


def test_an_order_promises_nothing_when_the_text_is_another_or_there_is_no_suggestion() -> None:
    assert fix_order_of(finding("if first is 1:"), TEXT).replacement is None
    assert fix_order_of(finding("if first is 1:", (1, 9, 1, 11, "==")), "other\n" + TEXT).replacement is None
    assert fix_order_of(finding("if first is 1:", (1, 9, 1, 11, "==")), None).replacement is None


def test_the_brief_tells_models_in_words_what_rules_read_in_its_block() -> None:
    brief = fix_brief(finding("if first is 1:", (1, 9, 1, 11, "==")), TEXT)
    assert "`a.py`, line 2" in brief
    assert "> if first is 1:" in brief
    order = fix_order(brief)
    assert order is not None
    assert order.replacement == "if first == 1:"


async def test_the_offline_fixer_puts_a_ready_fix_in_its_worktree_and_the_checkout_stays(
    office: Office, project: RealRepository
) -> None:
    project.write("b.py", TEXT)
    workspace = await office.workspace(project)
    await (await office.outpost.review(workspace, ReviewScope(scope="file", paths=("b.py",)))).wait()
    [found] = [one for one in workspace.findings("b.py") if one.suggestion is not None]
    before = project.state()
    run = await (await office.outpost.fix(workspace, found.id)).wait()
    assert (run.kind, run.status, run.disposition) == ("fix", "succeeded", "pending")
    diff = await results.diff(workspace, run)
    assert [each.file.path for each in diff.files] == ["b.py"]
    assert b"+if first == 1:" in diff.patch
    assert project.state() == before


async def test_a_model_is_given_the_finding_and_what_it_changes_is_pending(
    office: Office, project: RealRepository
) -> None:
    workspace = await office.workspace(project)
    await (await office.outpost.review(workspace, ReviewScope())).wait()
    [found] = workspace.findings()
    with ModelServer(["It is no fault."]) as server:
        await workspace.reload(loopback(server.base_url))
        run = await (await office.outpost.fix(workspace, found.id)).wait()
        asked = server.requests[0].body.decode()
    assert found.title.split("`")[-1] in asked
    assert (run.text, run.disposition) == ("It is no fault.", "none")


async def test_a_finding_that_is_not_there_cannot_be_fixed(office: Office, project: RealRepository) -> None:
    workspace = await office.workspace(project)
    with pytest.raises(OutpostError, match="findingId"):
        await office.outpost.fix(workspace, "nobody")
