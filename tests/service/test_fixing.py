"""A finding is handed to an agent; what it changes waits to be applied."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from outpost_lsp.domain.anchor import Anchor, find_quote
from outpost_lsp.domain.finding import Finding, Span, Suggestion, TextReplacement, fingerprint
from outpost_lsp.domain.landing import FileOperation
from outpost_lsp.domain.run import ReviewScope
from outpost_lsp.errors import OutpostError
from outpost_lsp.models.rule_based.assignment import fix_order
from outpost_lsp.sandbox.landing import land
from outpost_lsp.sandbox.standing import present_on_disk
from outpost_lsp.service import results
from outpost_lsp.service.dispatches import fix_brief, fix_order_of
from outpost_lsp.service.workspace import Workspace
from tests.service.conftest import Office, loopback
from tests.support.model_answers import Answer
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


@pytest.mark.parametrize("remains", [False, True])
async def test_what_a_fix_touches_is_reviewed_again_and_what_remains_is_a_finding_once_it_is_applied(
    office: Office, project: RealRepository, remains: bool
) -> None:
    project.write("b.py", "first = 1\n")
    project.commit_all()
    project.write("b.py", "first = 1\nprint(nobody)\n")
    workspace = await office.workspace(project)
    await (await office.outpost.review(workspace, ReviewScope())).wait()
    [found] = workspace.findings("b.py")
    edit = {"path": "b.py", "old_text": "print(nobody)", "new_text": "print(somebody)"}
    report = {
        "path": "b.py",
        "quote": "print(somebody)",
        "severity": "error",
        "title": "Another name that is not defined",
        "detail": "Define it.",
        "code": "undefined-name",
    }
    again = [Answer(calls=[{"name": "report_finding", "input": report}])] if remains else []
    with ModelServer([Answer(calls=[{"name": "edit_file", "input": edit}]), "Fixed.", *again, "Looked."]) as server:
        await workspace.reload(loopback(server.base_url))
        run = await (await office.outpost.fix(workspace, found.id)).wait()
        asked = server.requests[2].body.decode()
    assert (run.status, run.disposition) == ("succeeded", "pending")
    assert found.title.split("`")[0] in asked
    assert "+print(somebody)" in asked or "b.py" in asked
    [note] = [note for note in run.notes if note.startswith("Reviewed again: ")]
    assert ("nothing remains" in note) != remains
    assert ("Another name" in note) == remains
    assert [one.id for one in workspace.findings("b.py")] == [found.id]
    kinds = [(one.kind, one.status) for one in workspace.runs.list()]
    assert kinds.count(("review", "succeeded")) == 2
    assert project.git("worktree", "list").count("\n") == 1

    outcome = await results.apply(
        workspace, run, present=lambda path: present_on_disk(workspace.top, path), land=on_disk(workspace)
    )
    assert outcome.applied
    workspace.board.catch_up()
    shown = {one.id: one.status for one in workspace.findings("b.py")}
    assert shown.pop(found.id, "fixed") == "fixed"
    assert list(shown.values()) == (["open"] if remains else [])


async def test_a_fix_that_cannot_be_reviewed_again_is_offered_and_a_note_says_so(
    office: Office, project: RealRepository
) -> None:
    workspace = await office.workspace(project)
    await (await office.outpost.review(workspace, ReviewScope())).wait()
    [found] = workspace.findings()
    edit = Answer(calls=[{"name": "write_file", "input": {"path": found.path, "content": "import math\n"}}])
    with ModelServer([edit, "Fixed.", Answer(status=400, json={"error": {"message": "no"}})]) as server:
        await workspace.reload(loopback(server.base_url))
        run = await (await office.outpost.fix(workspace, found.id)).wait()
    assert (run.status, run.disposition) == ("succeeded", "pending")
    assert any("could not be reviewed again" in note for note in run.notes)


def on_disk(workspace: Workspace) -> results.Land:
    async def landed(operations: Sequence[FileOperation]) -> bool:
        await land(workspace.top, operations, records=workspace.layout.landings)
        return True

    return landed
