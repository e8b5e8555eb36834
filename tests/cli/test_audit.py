"""The command `audit`: many repositories, one report each, and a summary (as a process; on a face, see tests/cluster)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from outpost_lsp.cli.audit import _listed, _names
from outpost_lsp.errors import OutpostError
from tests.cli.conftest import Program
from tests.support.model_answers import Answer
from tests.support.model_server import ModelServer
from tests.support.repositories import make_repository


def test_each_repository_gets_its_report_and_one_that_fails_costs_the_others_nothing(
    program: Program, tmp_path: Path
) -> None:
    make_repository(tmp_path / "one" / "api", {"a.py": "print(undefined_name)\n"})
    make_repository(tmp_path / "two" / "api", {"a.py": "x = 1\n"})
    listed = tmp_path / "list.txt"
    listed.write_text("# nightly\none/api\n\ntwo/api # the other one\nno/such/folder\n")
    ended = program("audit", str(listed), "--output", str(tmp_path / "reports"))
    summary = json.loads((tmp_path / "reports" / "summary.json").read_text())
    found = {Path(each["folder"]).relative_to(tmp_path).as_posix(): each for each in summary["repositories"]}
    assert list(found) == ["one/api", "two/api", "no/such/folder"]
    assert (found["one/api"]["status"], found["one/api"]["report"]) == ("succeeded", "api.sarif")
    assert (found["two/api"]["status"], found["two/api"]["report"]) == ("succeeded", "api-2.sarif")
    assert found["no/such/folder"]["status"] == "failed"
    assert found["no/such/folder"]["message"]
    assert found["one/api"]["failing"]
    assert not found["two/api"]["failing"]
    [run] = json.loads((tmp_path / "reports" / "api.sarif").read_text())["runs"]
    assert [result["ruleId"] for result in run["results"]] != []
    assert json.loads((tmp_path / "reports" / "api-2.sarif").read_text())["runs"][0]["results"] == []
    assert "3 repositories, 1 without a report; error: 1" in ended.out
    assert len(ended.err.strip().splitlines()) == 3
    assert ended.status == 3


def test_findings_make_the_status_and_quiet_says_only_the_totals(program: Program, tmp_path: Path) -> None:
    make_repository(tmp_path / "api", {"a.py": "print(undefined_name)\n"})
    (tmp_path / "list.txt").write_text("api\n")
    arguments = ("audit", str(tmp_path / "list.txt"), "--output", str(tmp_path / "reports"), "-q")
    ended = program(*arguments)
    assert (ended.status, ended.err) == (1, "")
    assert program(*arguments, "--fail-on", "never").status == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("no-such-list",), "no-such-list"),
        (("empty.txt",), "names no repository"),
        (("list.txt", "--set", "runs.executor=ray"), "runs.ray.url"),
        (("list.txt", "--executor", "elsewhere"), "--executor"),
    ],
)
def test_what_cannot_be_audited_is_one_sentence_and_nothing_is_started(
    arguments: tuple[str, ...], says: str, program: Program, tmp_path: Path
) -> None:
    (tmp_path / "empty.txt").write_text("# nothing\n")
    (tmp_path / "list.txt").write_text("api\n")
    ended = program("audit", *arguments, cwd=tmp_path)
    assert ended.status == 2
    assert says in ended.err
    assert len(ended.err.strip().splitlines()) == 1


def test_a_list_is_relative_to_itself_and_no_two_reports_have_one_name(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("a\n/x/a\n../b/A\n/y/a-2\n/y/a-2\n/z/böse ☃\n")
    folders = _listed(tmp_path / "list.txt")
    assert folders == [tmp_path / "a", Path("/x/a"), tmp_path.parent / "b/A", Path("/y/a-2"), Path("/z/böse ☃")]
    names = list(_names(folders).values())
    assert names == ["a", "a-2", "A-3", "a-2-2", "b-se-"]
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(OutpostError, match="UTF-8"):
        _listed(tmp_path / "binary")


def test_an_audit_that_costs_money_starts_nothing_until_somebody_agrees(program: Program, tmp_path: Path) -> None:
    make_repository(tmp_path / "api", {"a.py": "x = 1\n"})
    (tmp_path / "list.txt").write_text("api\n")
    arguments = ("audit", str(tmp_path / "list.txt"), "--output", str(tmp_path / "reports"))
    with ModelServer([Answer(text="Fine.", times=0)]) as server:
        program.use_model(server.base_url, more="price = { input = 1000.0, output = 8.0 }\n")
        ended = program(*arguments)
        assert (ended.status, "--yes" in ended.err) == (3, True)
        assert server.requests == []
        assert program(*arguments, "--yes").status == 0
