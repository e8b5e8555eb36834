"""The findings of a workspace, on real files and a real store."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path

import pytest

from outpost_lsp.domain.anchor import Anchor, find_quote
from outpost_lsp.domain.finding import Finding, Severity, fingerprint
from outpost_lsp.errors import OutpostError
from outpost_lsp.lsp.hover import hover_markdown
from outpost_lsp.service import dismissing
from outpost_lsp.service.board import FindingBoard
from outpost_lsp.storage.findings import FindingStore
from outpost_lsp.storage.shared_dismissals import SHARED_PATH

TEXT = "def first():\n    return 1\n\n\ndef second():\n    return first\n"


class Desk:
    """A board over a folder, and what it told."""

    def __init__(self, folder: Path) -> None:
        self.top = folder / "top"
        self.state = folder / "state"
        self.top.mkdir(exist_ok=True)
        self.told: list[str] = []
        self.warned: list[str] = []
        self.board = self.open()

    def open(self) -> FindingBoard:
        self.board = FindingBoard(self.top, FindingStore(self.state), self.told.append, self.warned.append)
        self.board.load()
        return self.board

    def write(self, path: str, text: str) -> None:
        (self.top / path).write_text(text, "utf-8")


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    made = Desk(tmp_path)
    made.write("a.py", TEXT)
    return made


def finding(
    quote: str,
    *,
    run: str = "20260101-000000-000000-aaaaaa",
    number: int = 1,
    path: str = "a.py",
    code: str = "c",
    agent: str = "reviewer",
    severity: Severity = "warning",
    text: str = TEXT,
) -> Finding:
    anchor = find_quote(text, quote, line_hint=0)
    assert isinstance(anchor, Anchor)
    return Finding(
        id=f"{run}-{number}",
        run_id=run,
        agent=agent,
        path=path,
        span=anchor.span,
        severity=severity,
        code=code,
        title="t",
        quote=anchor.text,
        fingerprint=fingerprint(path, code, anchor.text, anchor.ordinal),
    )


async def test_a_published_finding_is_told_and_listed_where_its_quote_stands_now(desk: Desk) -> None:
    desk.write("a.py", "# edited meanwhile\n" + TEXT)
    desk.board.publish(finding("return first"))
    [shown] = desk.board.listing()
    assert shown.span.start_line == 6
    assert desk.told == ["a.py"]


async def test_the_open_documents_text_counts_and_the_disks_again_when_it_is_closed(desk: Desk) -> None:
    desk.board.opened("a.py", "\n\n\n" + TEXT)
    desk.board.publish(finding("return first"))
    assert desk.board.listing()[0].span.start_line == 8
    desk.board.closed("a.py")
    assert desk.board.listing()[0].span.start_line == 5
    assert desk.told[-1] == "a.py"


async def test_an_edit_is_told_only_where_a_finding_is_concerned(desk: Desk) -> None:
    desk.board.opened("a.py", TEXT)
    desk.board.opened("b.py", "x\n")
    desk.board.publish(finding("return 1"))
    desk.told.clear()
    desk.board.edited("b.py", "x\n", "y\n")
    desk.board.edited("a.py", TEXT, TEXT + "# end\n")
    assert desk.told == []
    desk.board.edited("a.py", TEXT + "# end\n", "#\n" + TEXT + "# end\n")
    assert desk.told == ["a.py"]
    assert desk.board.listing()[0].span.start_line == 2


async def test_findings_survive_a_restart_and_are_placed_again_by_their_quotes(desk: Desk) -> None:
    desk.board.publish(finding("return first"))
    desk.board.publish(finding("return 1", number=2, code="d"))
    desk.board.flush()
    desk.write("a.py", "# new\n" * 20 + TEXT.replace("return 1", "yield 2"))
    board = desk.open()
    assert [(one.span.start_line, one.status) for one in board.listing()] == [(1, "stale"), (25, "open")]


async def test_a_file_written_by_somebody_else_moves_its_findings_when_they_are_asked_for(desk: Desk) -> None:
    desk.board.publish(finding("return first"))
    assert desk.board.listing()[0].span.start_line == 5
    desk.write("a.py", "#\n" + TEXT)
    assert desk.board.listing("a.py")[0].span.start_line == 6


async def test_a_deleted_file_withdraws_its_findings_and_its_return_brings_them_back(desk: Desk) -> None:
    desk.board.publish(finding("return first"))
    (desk.top / "a.py").unlink()
    [shown] = desk.board.listing()
    assert shown.status == "stale"
    assert desk.board.is_withdrawn(shown.id)
    desk.write("a.py", TEXT)
    assert [one.status for one in desk.board.listing()] == ["open"]


async def test_REL_12_the_same_finding_of_several_runs_and_agents_is_shown_once(desk: Desk) -> None:
    desk.board.publish(finding("return first"))
    desk.board.publish(finding("return first", run="20260101-000001-000000-bbbbbb"))
    assert [one.run_id[9:15] for one in desk.board.listing()] == ["000001"]
    desk.board.publish(finding("return first", run="20260101-000002-000000-cccccc", agent="other", severity="error"))
    later = finding("return first", run="20260101-000003-000000-dddddd", agent="third", severity="hint")
    desk.board.publish(later)
    [shown] = desk.board.listing()
    assert (shown.id, shown.agent, shown.severity) == (later.id, "third", "error")
    assert shown.also_by == ("other", "reviewer")
    [standing] = desk.board.standing("a.py")
    assert standing.finding == shown
    assert desk.board.find(later.id) == shown


async def test_what_another_agent_reported_alike_stays_when_one_of_them_takes_it_back(desk: Desk) -> None:
    desk.board.publish(finding("return first"))
    other = finding("return first", run="20260101-000002-000000-cccccc", agent="other")
    desk.board.publish(other)
    assert desk.board.remove([other.id]) == 1
    assert [(one.agent, one.also_by) for one in desk.board.listing()] == [("reviewer", ())]
    desk.board.publish(other)
    assert desk.board.clear("a.py") == 1
    assert desk.board.listing() == []


async def test_findings_of_earlier_runs_alone_can_be_removed(desk: Desk) -> None:
    first, second = "20260101-000001-000000-aaaaaa", "20260101-000002-000000-bbbbbb"
    desk.board.publish(finding("return first", run=first))
    desk.board.publish(finding("return 1", run=second, number=2))
    assert desk.board.clear_earlier(second) == 1
    assert [one.run_id for one in desk.board.listing()] == [second]
    assert desk.board.clear_earlier(second) == 0


async def test_U_09_a_dismissed_finding_stays_dismissed_across_restarts_runs_moves_and_wordings(desk: Desk) -> None:
    desk.board.publish(finding("return first"))
    [shown] = desk.board.listing()
    dismissed = desk.board.dismiss(shown.id, "it is meant", None)
    assert dismissed.status == "dismissed"
    assert dismissed.dismissal is not None
    assert dismissed.dismissal.reason == "it is meant"
    desk.board.flush()
    desk.write("a.py", "# moved\n" * 20 + TEXT)
    board = desk.open()
    board.publish(finding("return first", run="20260102-000000-000000-bbbbbb", code="other-code"))
    assert {one.status for one in board.listing()} == {"dismissed"}


async def test_U_09_a_dismissed_finding_returns_when_its_code_changes_materially(desk: Desk) -> None:
    desk.board.publish(finding("return first"))
    desk.board.dismiss(desk.board.listing()[0].id, None, None)
    changed = TEXT.replace("return first", "return first()")
    desk.write("a.py", changed)
    desk.board.publish(finding("return first()", run="20260102-000000-000000-bbbbbb", number=2, text=changed))
    assert [one.status for one in desk.board.listing() if one.quote == "return first()"] == ["open"]


async def test_U_10_a_dismissal_ends_with_its_date(desk: Desk) -> None:
    desk.board.publish(finding("return first"))
    [shown] = desk.board.listing()
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    yesterday = (datetime.now(UTC) - timedelta(days=1)).isoformat()
    assert desk.board.dismiss(shown.id, None, tomorrow).status == "dismissed"
    assert desk.board.dismiss(shown.id, None, yesterday).status == "open"
    over = desk.board.dismissal_of(shown)
    assert over is not None
    assert over.until == yesterday


async def test_a_dismissal_can_be_taken_back(desk: Desk) -> None:
    desk.board.publish(finding("return first"))
    [shown] = desk.board.listing()
    desk.board.dismiss(shown.id, None, None)
    assert desk.board.restore(shown.id).status == "open"
    assert desk.board.listing(status="dismissed") == []


async def test_a_date_that_is_none_and_a_finding_that_is_not_there_are_refused_by_name(desk: Desk) -> None:
    desk.board.publish(finding("return first"))
    [shown] = desk.board.listing()
    with pytest.raises(OutpostError, match="until") as fault:
        desk.board.dismiss(shown.id, None, "next week")
    assert fault.value.code == "configuration"
    with pytest.raises(OutpostError, match="findingId"):
        desk.board.dismiss("nobody", None, None)


async def test_shared_dismissals_are_written_to_the_repository_and_followed_from_it(desk: Desk) -> None:
    assert desk.board.follow_dismissals(shared=True) == ()
    desk.board.publish(finding("return first"))
    desk.board.dismiss(desk.board.listing()[0].id, "agreed", None)
    assert (desk.top / ".outpost" / "dismissals.json").exists()
    desk.board.flush()
    desk.state = desk.state.with_name("colleague")
    board = desk.open()
    assert board.follow_dismissals(shared=True) == ()
    board.publish(finding("return first"))
    assert [one.status for one in board.listing()] == ["dismissed"]


async def test_a_shared_dismissal_that_a_colleague_makes_or_takes_back_is_followed(desk: Desk) -> None:
    colleague = Desk(desk.top.parent)
    colleague.state = desk.state.with_name("colleague")
    assert colleague.open().follow_dismissals(shared=True) == ()
    assert desk.board.follow_dismissals(shared=True) == ()
    for board in (desk.board, colleague.board):
        board.publish(finding("return first"))
    desk.told.clear()
    [shown] = colleague.board.listing()
    colleague.board.dismiss(shown.id, "agreed", None)
    desk.board.catch_up()
    assert desk.told == ["a.py"]
    assert [one.status for one in desk.board.listing()] == ["dismissed"]
    colleague.board.restore(shown.id)
    desk.board.catch_up()
    assert [one.status for one in desk.board.listing()] == ["open"]
    colleague.board.dismiss(shown.id, "agreed", None)
    desk.board.follow_dismissals(shared=False)
    assert [one.status for one in desk.board.listing()] == ["open"]


async def test_a_shared_dismissal_that_a_colleague_takes_back_ends_for_whoever_made_it_too(desk: Desk) -> None:
    desk.board.follow_dismissals(shared=True)
    desk.board.publish(finding("return first"))
    desk.board.dismiss(desk.board.listing()[0].id, "agreed", None)
    desk.board.flush()
    desk.told.clear()
    (desk.top / SHARED_PATH).write_text('{"version": 1, "dismissals": []}\n')
    desk.board.changed_on_disk(SHARED_PATH)
    assert desk.told == ["a.py"]
    assert [one.status for one in desk.board.listing()] == ["open"]
    board = desk.open()
    board.follow_dismissals(shared=True)
    assert [one.status for one in board.listing()] == ["open"]


async def test_a_private_dismissal_stays_private_until_it_is_made_again_with_the_team(desk: Desk) -> None:
    desk.board.publish(finding("return first"))
    [shown] = desk.board.listing()
    desk.board.dismiss(shown.id, "mine", None)
    desk.board.follow_dismissals(shared=True)
    assert [one.status for one in desk.board.listing()] == ["dismissed"]
    assert not (desk.top / SHARED_PATH).exists()
    assert desk.board.restore(shown.id).status == "open"
    assert not (desk.top / SHARED_PATH).exists()
    desk.board.follow_dismissals(shared=False)
    desk.board.dismiss(shown.id, "mine", None)
    desk.board.follow_dismissals(shared=True)
    desk.board.dismiss(shown.id, "ours", None)
    (desk.top / SHARED_PATH).unlink()
    desk.board.catch_up()
    assert [one.status for one in desk.board.listing()] == ["open"]


async def test_a_mangled_file_of_the_team_is_told_once_and_what_it_said_before_counts(desk: Desk) -> None:
    desk.board.follow_dismissals(shared=True)
    desk.board.publish(finding("return first"))
    desk.board.publish(finding("return 1", number=2, code="d"))
    first, second = desk.board.listing()
    desk.board.dismiss(first.id, "agreed", None)
    file = desk.top / SHARED_PATH
    sound = file.read_text()
    file.write_text("{")
    for _ in range(3):
        desk.board.changed_on_disk(SHARED_PATH)
        desk.board.catch_up()
    [told] = desk.warned
    assert told.startswith(f"{SHARED_PATH}: line 1: it is not JSON")
    assert told.endswith("mend it, or take back an earlier version with git; until then what it said before counts")
    assert [one.status for one in desk.board.listing()] == ["dismissed", "open"]
    with pytest.raises(OutpostError, match="mend it") as fault:
        desk.board.dismiss(second.id, None, None)
    assert fault.value.details == {"path": SHARED_PATH}
    with pytest.raises(OutpostError, match="mend it"):
        desk.board.restore(first.id)
    assert [one.status for one in desk.board.listing()] == ["dismissed", "open"]
    assert file.read_text() == "{"
    file.write_text(sound)
    desk.board.changed_on_disk(SHARED_PATH)
    assert desk.board.dismiss(second.id, None, None).status == "dismissed"
    file.write_text("{")
    desk.board.changed_on_disk(SHARED_PATH)
    assert len(desk.warned) == 2


async def test_U_10_a_finding_whose_dismissal_ends_is_told_about_and_says_so(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.board.publish(finding("return first"))
    until = datetime.now(UTC) + timedelta(hours=1)
    desk.board.dismiss(desk.board.listing()[0].id, "later", until.isoformat())
    desk.board.catch_up()
    desk.told.clear()
    desk.board.catch_up()
    assert desk.told == []

    class Later(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:
            return until + timedelta(seconds=1)

    monkeypatch.setattr(dismissing, "datetime", Later)
    desk.board.catch_up()
    assert desk.told == ["a.py"]
    [shown] = desk.board.listing()
    assert shown.status == "open"
    assert "its dismissal ended" in hover_markdown([shown])


async def test_clearing_a_file_leaves_the_others_and_the_dismissals(desk: Desk) -> None:
    desk.write("b.py", TEXT)
    desk.board.publish(finding("return first"))
    desk.board.publish(finding("return first", number=2, path="b.py"))
    desk.board.dismiss(desk.board.listing("a.py")[0].id, "no", None)
    assert desk.board.clear("a.py") == 1
    assert [one.path for one in desk.board.listing()] == ["b.py"]
    desk.board.publish(finding("return first", number=3))
    assert [one.status for one in desk.board.listing("a.py")] == ["dismissed"]
    assert desk.board.clear() == 2


async def test_a_link_is_not_followed_for_the_text_of_a_file(desk: Desk, tmp_path: Path) -> None:
    outside = tmp_path / "outside.py"
    outside.write_text(TEXT, "utf-8")
    (desk.top / "a.py").unlink()
    (desk.top / "a.py").symlink_to(outside)
    desk.board.publish(finding("return first"))
    assert desk.board.listing()[0].status == "stale"


async def test_REL_12_findings_and_dismissals_of_another_process_are_taken_over(desk: Desk) -> None:
    other = FindingBoard(desk.top, FindingStore(desk.state), lambda _path: None)
    other.load()
    other.publish(finding("return first"))
    other.flush()
    desk.board.catch_up()
    [shown] = desk.board.listing()
    assert desk.told == ["a.py"]
    other.dismiss(shown.id, "no", None)
    desk.board.catch_up()
    assert [one.status for one in desk.board.listing()] == ["dismissed"]
    other.remove([shown.id])
    other.flush()
    desk.board.catch_up()
    assert desk.board.listing() == []
    desk.told.clear()
    desk.board.catch_up()
    assert desk.told == []
