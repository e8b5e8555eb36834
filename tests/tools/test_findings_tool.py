"""What stands between a report and its publication: place, scope, dismissals, repetitions, limits."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from outpost_lsp.domain.event import WarningEvent
from outpost_lsp.domain.finding import Dismissal, Finding, Span
from outpost_lsp.domain.tool import InvalidInputError
from outpost_lsp.errors import OutpostError
from outpost_lsp.tools.finding_input import REPORT_SCHEMA, slug
from outpost_lsp.tools.findings import FindingScope, finding_tools
from tests.tools.conftest import Workplace, by_name

SOURCE = "def first(value):\n    if value:\n        return None\n    return value\n\n\ndef second(value):\n    if value:\n        return None\n    return [value]\n"


@pytest.fixture
def reviewed(workplace) -> Workplace:
    workplace.write("a.py", SOURCE)
    return workplace


async def report(workplace: Workplace, scope: FindingScope | None = None, **fields):
    values = {
        "path": "a.py",
        "quote": "return [value]",
        "severity": "warning",
        "code": "slip",
        "title": "It fails",
        "detail": "When it is called.",
    }
    return await workplace.call(finding_tools(scope), "report_finding", **{**values, **fields})


async def placed(workplace: Workplace, scope: FindingScope | None = None, **fields) -> Finding:
    output = await report(workplace, scope, **fields)
    assert not output.is_error, output
    finding = workplace.reported[-1].finding
    assert finding is not None
    return finding


async def test_a_finding_is_placed_at_its_quote_and_published(reviewed):
    finding = await placed(reviewed, FindingScope(run_id="run", agent="reviewer"), confidence=0.8)
    assert finding.span == Span(start_line=9, start_character=4, end_line=9, end_character=18)
    assert (finding.path, finding.quote, finding.status) == ("a.py", "return [value]", "open")
    assert (finding.run_id, finding.agent, finding.id) == ("run", "reviewer", "run-1")
    assert (finding.severity, finding.code, finding.title, finding.confidence) == ("warning", "slip", "It fails", 0.8)
    assert (finding.model, finding.route, finding.in_diff) == ("model", "deep", None)


async def test_U_04_a_wrong_line_does_not_matter_and_is_told(reviewed):
    output = await report(reviewed, line=2)
    assert output.content.startswith(
        "Placed at a.py:10; line 2 was given, the quote stands on line 10; severity warning"
    )


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"quote": "no such text"}, "a.py: the quote is not in the file"),
        ({"quote": " \n"}, "a.py: the quote is blank"),
        ({"quote": "return None"}, "a.py: the quote stands at 2 places (lines 3, 9)"),
        ({"path": "missing.py"}, "missing.py"),
        ({"path": "../a.py"}, "../a.py"),
        ({"path": "/etc/passwd"}, "/etc/passwd"),
        ({"path": ".git/config"}, ".git/config"),
        ({"path": "image.bin"}, "image.bin looks binary"),
        ({"path": "."}, "kind"),
    ],
)
async def test_U_05_SEC_21_what_does_not_exist_is_refused_with_the_reason_and_counted(reviewed, fields, words):
    reviewed.write("image.bin", b"return [value]\0")
    scope = FindingScope()
    output = await report(reviewed, scope, **fields)
    assert output.is_error
    assert output.content.startswith("Refused: ")
    assert words in output.content or words == "kind"
    [event] = reviewed.reported
    assert event.finding is None
    assert event.rejected == output.content.removeprefix("Refused: ")
    assert scope.ledger.rejected == 1


async def test_a_finding_outside_the_changed_lines_becomes_a_hint(reviewed):
    scope = FindingScope(changed={"a.py": ((0, 4),)})
    finding = await placed(reviewed, scope, severity="error")
    assert (finding.severity, finding.in_diff) == ("hint", False)
    inside = await placed(reviewed, scope, severity="error", quote="return value")
    assert (inside.severity, inside.in_diff) == ("error", True)


async def test_changed_lines_decide_between_equal_places(reviewed):
    assert (
        await placed(reviewed, FindingScope(changed={"a.py": ((6, 10),)}), quote="return None", line=1)
    ).span.start_line == 8


async def test_what_the_change_causes_elsewhere_keeps_its_severity(reviewed):
    finding = await placed(reviewed, FindingScope(changed={"b.py": ((0, 1),)}), severity="error", caused_by_change=True)
    assert (finding.severity, finding.in_diff) == ("error", True)


async def test_U_06_outside_findings_are_dropped_or_kept_as_configured(reviewed):
    dropped = FindingScope(changed={}, outside="drop")
    output = await report(reviewed, dropped)
    assert not output.is_error
    assert output.content.startswith("Not shown: a.py:10 lies outside")
    assert (reviewed.reported, dropped.ledger.withheld) == ([], 1)
    kept = await placed(reviewed, FindingScope(changed={}, outside="keep"), severity="error")
    assert (kept.severity, kept.in_diff) == ("error", False)


async def test_a_deletion_touches_the_lines_beside_it(reviewed):
    scope = FindingScope(changed={"a.py": ((9, 9),)}, outside="drop")
    assert (await placed(reviewed, scope)).in_diff is True


async def test_outside_the_files_or_the_selection_asked_for_counts_as_outside(reviewed):
    reviewed.write("lib/b.py", "x = 1\n")
    assert (await placed(reviewed, FindingScope(paths=("lib",)))).severity == "hint"
    assert (await placed(reviewed, FindingScope(paths=("lib",)), path="lib/b.py", quote="x = 1")).severity == "warning"
    span = Span(start_line=8, start_character=0, end_line=9, end_character=3)
    scope = FindingScope(paths=("a.py",), span=span)
    assert (await placed(reviewed, scope)).severity == "warning"
    assert (await placed(reviewed, scope, quote="return value")).severity == "hint"
    assert (await placed(reviewed, scope, quote="return None", code="other")).span.start_line == 8


async def test_below_the_asked_confidence_nothing_is_shown(reviewed):
    scope = FindingScope(min_confidence=0.5)
    assert "0.4 is below the asked 0.5" in (await report(reviewed, scope, confidence=0.4)).content
    assert reviewed.reported == []
    await placed(reviewed, scope, confidence=0.5)
    await placed(reviewed, scope, quote="return value")


async def test_excluded_files_are_told_and_not_shown(reviewed):
    scope = FindingScope(excluded=lambda path: path.endswith(".py"))
    assert "a.py is excluded" in (await report(reviewed, scope)).content
    assert reviewed.reported == []


async def test_U_09_a_dismissed_finding_is_told_and_recorded_as_dismissed(reviewed):
    dismissal = Dismissal(reason="known and\nwanted", at="2030-01-01T00:00:00Z")
    scope = FindingScope(run_id="run", dismissed=lambda _finding: dismissal)
    output = await report(reviewed, scope)
    assert output.content.startswith("Not shown: a.py:10 was dismissed before")
    assert "known and wanted" in output.content
    await report(reviewed, scope)
    [event] = reviewed.reported
    assert event.finding is not None
    assert (event.finding.status, event.finding.dismissal) == ("dismissed", dismissal)
    assert scope.ledger.published == {}


async def test_the_dismissals_are_asked_about_the_placed_finding(reviewed):
    asked: list[Finding] = []

    def dismissed(finding: Finding) -> None:
        asked.append(finding)

    finding = await placed(reviewed, FindingScope(dismissed=dismissed))
    assert [(entry.fingerprint, entry.severity, entry.quote) for entry in asked] == [
        (finding.fingerprint, "warning", "return [value]")
    ]


@pytest.mark.parametrize("until", ["2030-01-01T00:00:00Z", "2030-01-01T00:00:00+00:00", "2030-01-01"])
async def test_U_10_an_expired_dismissal_lets_the_finding_return_and_says_so(reviewed, until):
    def scope(now: datetime) -> FindingScope:
        return FindingScope(dismissed=lambda _: Dismissal(at="2029-01-01T00:00:00Z", until=until), now=lambda: now)

    before = await report(reviewed, scope(datetime(2029, 12, 31, tzinfo=UTC)))
    assert before.content.startswith("Not shown")
    finding = await placed(reviewed, scope(datetime(2030, 1, 2, tzinfo=UTC)))
    assert finding.status == "open"
    assert finding.dismissal is not None
    assert f"Dismissal expired: it held until {until}." in finding.detail


async def test_the_same_finding_twice_is_one(reviewed):
    scope = FindingScope(run_id="run", agent="one")
    first = await placed(reviewed, scope)
    output = await report(reviewed, scope, title="In other words", severity="error")
    assert output.content.startswith("Reported already in this run, at a.py:10: It fails")
    assert len(reviewed.reported) == 1
    assert scope.ledger.published == {first.id: first}


async def test_another_agents_word_raises_severity_and_confidence(reviewed):
    scope = FindingScope(run_id="run", agent="one")
    first = await placed(reviewed, scope, confidence=0.6)
    second = await placed(reviewed, replace(scope, agent="two"), severity="error", confidence=0.8)
    assert (second.id, second.agent, second.severity, second.confidence) == (first.id, "one", "error", 0.8)
    assert list(scope.ledger.published.values()) == [second]


async def test_other_words_on_the_same_text_are_merged(reviewed):
    scope = FindingScope(run_id="run", agent="one")
    first = await placed(reviewed, scope)
    output = await report(reviewed, scope, code="other", title="A second fault", detail="More.", severity="error")
    assert output.content.startswith("Merged with the finding at a.py:10 on the same text")
    merged = reviewed.reported[-1].finding
    assert merged is not None
    assert (merged.id, merged.code, merged.severity) == (first.id, "slip", "error")
    assert merged.detail == "When it is called.\n\n**A second fault** (`other`)\n\nMore."


async def test_a_longer_quote_of_the_same_fault_is_the_same_finding(reviewed):
    scope = FindingScope(run_id="run", agent="one")
    await placed(reviewed, scope)
    output = await report(reviewed, scope, quote="        return None\n    return [value]")
    assert output.content.startswith("Reported already")
    await placed(reviewed, scope, quote="        return None\n    return value")
    assert len(scope.ledger.published) == 2


async def test_equal_quotes_at_two_places_are_two_findings(reviewed):
    scope = FindingScope(run_id="run")
    first = await placed(reviewed, scope, quote="return None", line=3)
    second = await placed(reviewed, scope, quote="return None", line=9)
    assert first.fingerprint != second.fingerprint
    assert first.id != second.id


async def test_the_fingerprint_survives_line_moves(reviewed):
    first = await placed(reviewed, FindingScope(), quote="return None", line=9)
    reviewed.write("a.py", "# moved\n" * 20 + SOURCE)
    second = await placed(reviewed, FindingScope(), quote="    return None", line=29)
    assert first.fingerprint == second.fingerprint
    assert second.span.start_line == 28


async def test_REL_14_beyond_the_limit_nothing_is_shown_and_it_is_said_once(reviewed):
    scope = FindingScope(max_findings=1)
    await placed(reviewed, scope)
    for quote in ("return value", "def second(value):"):
        assert "max_findings" in (await report(reviewed, scope, quote=quote)).content
    assert len(reviewed.reported) == 1
    assert scope.ledger.cut == 2
    assert reviewed.observed == [WarningEvent(message="more than 1 findings (max_findings): the rest is not shown")]
    assert "Reported already" in (await report(reviewed, scope)).content


async def test_a_replacement_becomes_an_edit_of_exactly_the_quote(reviewed):
    finding = await placed(reviewed, replacement="return list(value)")
    assert finding.suggestion is not None
    [edit] = finding.suggestion.edits
    assert (edit.span, edit.text) == (finding.span, "return list(value)")
    assert finding.suggestion.title == "Fix: It fails"
    assert (await placed(reviewed, quote="return value", replacement="return value")).suggestion is None


async def test_in_a_file_that_is_not_utf8_a_finding_is_placed_and_no_fix_is_offered(workplace):
    workplace.write("a.py", b"# caf\xe9\nbroken = 1\n")
    finding = await placed(workplace, quote="broken = 1", replacement="broken = 2")
    assert finding.span.start_line == 1
    assert finding.suggestion is None


async def test_SEC_19_words_of_the_model_are_made_harmless(reviewed):
    finding = await placed(
        reviewed,
        title="A\u202e title\nof <b>two</b> lines",
        detail="![x](https://evil.example/?q=1) <img src=x> [go](command:x) `<b>`",
        code="../Weird Code!",
    )
    assert finding.title == "A\\u{202E} title of <b>two</b> lines"
    assert finding.detail == "\\!\\[x](https://evil.example/?q=1) \\<img src=x> [go]\\(command:x) `<b>`"
    assert finding.code == "weird-code"


@pytest.mark.parametrize(
    ("code", "expected"),
    [("unchecked-input", "unchecked-input"), ("Unchecked Input", "unchecked-input"), ("uncheckedInput", "unchecked-input"),
     ("SQLInjection", "sql-injection"), ("F821", "F821"), ("PLE0101", "PLE0101"), ("***", "finding"), ("x" * 99, "x" * 64)],
)  # fmt: skip
def test_codes_become_slugs(code, expected):
    assert slug(code) == expected
    assert slug(slug(code)) == expected


def test_the_schema_is_the_protocols():
    tool = by_name(finding_tools(), "report_finding")
    assert tool.spec.input_schema == REPORT_SCHEMA
    assert tool.spec.input_schema["additionalProperties"] is False
    assert tool.spec.input_schema["required"] == ["path", "quote", "severity", "code", "title", "detail"]


@pytest.mark.parametrize(
    "fields",
    [
        {"severity": "terrible"},
        {"line": 0},
        {"confidence": 1.5},
        {"confidence": float("nan")},
        {"title": " "},
        {"code": ""},
        {"column": 3},
        {"quote": ""},
    ],
)
def test_ill_formed_reports_are_invalid_input(fields):
    values = {"path": "a", "quote": "q", "severity": "error", "code": "c", "title": "t", "detail": ""}
    tool = by_name(finding_tools(), "report_finding")
    tool.validated(values)
    with pytest.raises(InvalidInputError, match=rf"^input\.{next(iter(fields))}: "):
        tool.validated({**values, **fields})


@pytest.mark.parametrize(
    ("word", "severity"), [("Critical", "error"), ("warn", "warning"), ("INFO", "information"), ("nit", "hint")]
)
async def test_other_words_for_a_severity_are_understood(reviewed, word, severity):
    assert (await placed(reviewed, severity=word)).severity == severity


async def test_a_file_that_the_agent_changed_is_read_as_it_was_reviewed(reviewed):
    snapshot = reviewed.repository.commit()
    reviewed.write("a.py", "# added by the agent\n" + SOURCE)
    reviewed.write("new.py", "return [value]\n")
    scope = FindingScope(snapshot=snapshot)
    assert (await placed(reviewed, scope)).span.start_line == 9
    assert (await report(reviewed, scope, path="new.py")).is_error
    (reviewed.repository.top / "a.py").unlink()
    assert (await placed(reviewed, scope, quote="return value")).span.start_line == 3


async def test_line_ends_are_those_of_the_file_as_it_is_checked_out(workplace):
    workplace.write(".gitattributes", "* text=auto eol=crlf\n")
    workplace.write("a.py", SOURCE.replace("\n", "\r\n"))
    snapshot = workplace.repository.commit()
    finding = await placed(workplace, FindingScope(snapshot=snapshot), replacement="a\nb")
    assert finding.suggestion is not None
    assert finding.suggestion.edits[0].text == "a\r\n    b"


async def test_a_link_is_refused(reviewed):
    (reviewed.repository.top / "link.py").symlink_to("a.py")
    snapshot = reviewed.repository.commit()
    output = await report(reviewed, FindingScope(snapshot=snapshot), path="link.py")
    assert output.is_error
    assert "link" in output.content


async def test_changed_lines_are_counted_as_git_counts_them(workplace):
    workplace.write("a.py", "one\rtwo\nthree\n")
    scope = FindingScope(changed={"a.py": ((1, 2),)})
    inside = await placed(workplace, scope, quote="three")
    assert (inside.in_diff, inside.span.start_line) == (True, 2)
    assert (await placed(workplace, scope, quote="two")).in_diff is False


async def test_faults_of_other_kinds_pass_through(reviewed):
    await reviewed.lease.release()
    with pytest.raises(OutpostError, match="released"):
        await report(reviewed, FindingScope(snapshot="0" * 40))


async def test_without_a_scope_each_worktree_is_a_run_of_its_own(reviewed):
    tools = finding_tools()
    values = {"path": "a.py", "quote": "return [value]", "severity": "error", "code": "c", "title": "t", "detail": ""}
    first = await reviewed.call(tools, "report_finding", **values)
    second = await reviewed.call(tools, "report_finding", **values)
    assert first.content.startswith("Placed")
    assert second.content.startswith("Reported already")


async def test_REL_16_a_line_of_five_megabytes_has_findings_too(workplace):
    workplace.write("a.py", "x" * 5_000_000 + " broken\n")
    finding = await placed(workplace, quote="broken", line=1)
    assert finding.span.start_character == 5_000_001
    workplace.write("huge.py", b"x\n" * 9_000_000)
    assert "16777216" in (await report(workplace, path="huge.py", quote="x")).content
