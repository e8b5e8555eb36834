"""How findings are written: for people, for GitHub."""

from __future__ import annotations

import re

from outpost_lsp.cli.github import github_lines
from outpost_lsp.cli.terminal import Paint
from outpost_lsp.cli.text_report import summary_line, text_report
from outpost_lsp.domain.finding import Finding, Severity, Span, Suggestion, TextReplacement
from outpost_lsp.domain.markdown import safe_markdown
from outpost_lsp.domain.run import Run
from outpost_lsp.reviews.sarif import sarif_log


def finding(**changes: object) -> Finding:
    base: dict[str, object] = {
        "id": "r-1",
        "run_id": "r",
        "agent": "reviewer",
        "path": "src/app.py",
        "span": Span(start_line=2, start_character=4, end_line=2, end_character=9),
        "severity": "error",
        "code": "undefined-name",
        "title": "Name is not defined",
        "detail": "It was imported before.",
        "quote": "value",
        "fingerprint": "f",
        "confidence": 0.9,
    }
    return Finding.model_validate(base | changes)


def report(found: Finding, lines: list[str], width: int = 80) -> list[str]:
    return list(text_report([found], lambda path: lines, width=width, paint=Paint(colour=False)))


def test_a_finding_is_shown_with_its_place_its_source_and_a_mark_under_the_quote() -> None:
    shown = report(finding(), ["one", "two", "    value = 1"])
    assert shown == [
        "src/app.py:3:5: error: Name is not defined",
        "    3 |     value = 1",
        "      |     ^^^^^",
        "    It was imported before.",
        "    undefined-name · confidence 0.9",
        "",
    ]


def test_that_a_fix_is_suggested_is_told_without_the_title_again() -> None:
    edit = TextReplacement(span=finding().span, text="values")
    shown = report(finding(suggestion=Suggestion(title="Fix: Name is not defined", edits=(edit,))), ["one"])
    assert shown[-2] == "    undefined-name · confidence 0.9 · has a suggested fix"


def test_the_mark_stands_under_wide_characters_and_tabs() -> None:
    span = Span(start_line=0, start_character=3, end_line=0, end_character=8)
    shown = report(finding(span=span), ["\t漢字value"[:8]])
    assert shown[1].endswith("|     漢字value")
    mark = shown[2]
    assert mark.index("^") == shown[1].index("漢") + 4
    assert mark.count("^") == 5


def test_a_long_line_is_cut_around_its_mark() -> None:
    line = "x" * 300 + "value" + "y" * 300
    span = Span(start_line=0, start_character=300, end_line=0, end_character=305)
    shown = report(finding(span=span), [line])
    assert len(shown[1]) <= 80
    start = shown[2].index("^")
    assert shown[1][start : start + 5] == "value"


def test_the_quote_is_shown_when_the_file_has_other_text_now() -> None:
    shown = report(finding(), ["other", "lines", "altogether"])
    assert "    3 | value" in shown


def test_a_quote_of_many_lines_is_cut_after_a_few() -> None:
    lines = [f"line {number}" for number in range(20)]
    span = Span(start_line=0, start_character=0, end_line=19, end_character=7)
    shown = report(finding(span=span, quote="\n".join(lines)), lines)
    assert sum("|" in line for line in shown) == 7
    assert any(line.endswith("| …") for line in shown)


def test_control_and_direction_characters_are_spelled_out_for_a_terminal() -> None:
    shown = "\n".join(report(finding(title="a\x1b[2Jb\u202ec", detail="\U000e0041"), ["x", "y", "\x1b]0;value"]))
    assert not re.search("[\x00-\x09\x0b-\x1f\u202e\U000e0041]", shown)


def test_a_name_with_a_line_break_cannot_pass_for_another_finding() -> None:
    shown = report(finding(path="a\nb.py:1:1: error: made up"), ["one", "two", "    value = 1"])
    assert shown[0] == "a\\u{000A}b.py:1:1: error: made up:3:5: error: Name is not defined"


def test_the_summary_counts_by_severity_worst_first() -> None:
    severities: list[Severity] = ["hint", "error", "warning", "error", "information"]
    found = [finding(severity=severity) for severity in severities]
    assert summary_line(found, Paint(colour=False)) == "5 findings: 2 errors, 1 warning, 1 information, 1 hint"
    assert summary_line([], Paint(colour=False)) == "No findings."


def test_github_commands_name_file_line_and_column_from_one() -> None:
    [line] = github_lines([finding()])
    assert line == (
        "::error file=src/app.py,line=3,endLine=3,title=Name is not defined (undefined-name),col=5,endColumn=9::"
        "It was imported before."
    )


def test_github_commands_cannot_be_ended_or_begun_by_the_text_of_a_finding() -> None:
    [line] = github_lines(
        [finding(path="a,b:c%0A.py", title="x::stop-commands::y,z", detail="50%\r\n::add-mask::secret\rend")]
    )
    assert "\n" not in line
    assert "\r" not in line
    assert line.count("::") == 4  # two of the command, two inside its message, which ends at the line's end
    assert "file=a%2Cb%3Ac%250A.py," in line
    assert "title=x%3A%3Astop-commands%3A%3Ay%2Cz (undefined-name)" in line
    assert line.endswith("::50%25%0A::add-mask::secret%0Aend")


def test_github_shows_information_and_hints_as_notices() -> None:
    found = [finding(severity=severity) for severity in ("warning", "information", "hint")]
    assert [line.split(" ")[0] for line in github_lines(found)] == ["::warning", "::notice", "::notice"]


def test_a_finding_over_several_lines_has_no_columns_on_github() -> None:
    span = Span(start_line=2, start_character=4, end_line=5, end_character=1)
    [line] = github_lines([finding(span=span)])
    assert "line=3,endLine=6" in line
    assert "col=" not in line


def test_texts_for_readers_without_markdown_show_no_escapes() -> None:
    found = finding(detail=safe_markdown("Compare <b> with **both** at http://x.y/`z`"))
    plainly = "Compare <b> with both at http://x.y/`z`"
    assert f"    {plainly}" in report(found, [])
    [line] = github_lines([found])
    assert line.endswith(f"::{plainly}")
    run = Run(
        id="r",
        kind="review",
        agent="a",
        title="t",
        status="succeeded",
        workspace="/w",
        started_at="2026-01-01T00:00:00Z",
    )
    log = sarif_log(run, [found], version="1")
    message = log["runs"][0]["results"][0]["message"]
    assert message["text"].endswith(plainly)
    assert "\\<b>" in message["markdown"]
