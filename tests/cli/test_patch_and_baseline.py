"""`review --patch` and `review --baseline`: any forge's diff, and only what is new."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from outpost_lsp.cli.baseline import read_baseline
from outpost_lsp.errors import OutpostError
from outpost_lsp.worktrees.git import find_repository, run_git
from outpost_lsp.worktrees.patched import LARGEST_PATCH, commit_of_patch
from tests.cli.conftest import Program
from tests.support.repositories import RealRepository

MAIL = """From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001
From: Somebody <somebody@example.invalid>
Subject: [PATCH] Greet people by their names

---
"""


def made_patch(repository: RealRepository) -> str:
    """A patch of the uncommitted work, which is taken back afterwards."""
    patch = repository.run("diff", "HEAD").decode()
    repository.git("checkout", "--", ".")
    return patch


def test_a_patch_from_a_file_is_reviewed_and_nothing_of_the_users_is_touched(
    program: Program, project: RealRepository, tmp_path: Path
) -> None:
    file = tmp_path / "change.diff"
    file.write_text(made_patch(project))
    before = project.state()
    ended = program("review", "--patch", str(file), "--format", "json", cwd=project.path)
    assert ended.status == 1, ended.err
    assert [(one["code"], one["inDiff"]) for one in ended.json["findings"]] == [("undefined-name", True)]
    assert ended.json["run"]["title"] == "Review of the patch change.diff"
    assert any("was applied to HEAD" in note for note in ended.json["run"]["notes"])
    assert "Found in the patch: 1 error." in ended.json["run"]["text"]
    assert project.state() == before


def test_a_patch_on_standard_input_that_the_checkout_has_already_is_reviewed_as_its_change(
    program: Program, project: RealRepository
) -> None:
    """In a pipeline the branch of a merge request is checked out, and its diff comes from the forge."""
    patch = project.run("diff", "HEAD").decode()
    project.commit_all("The change of the merge request")
    ended = program("review", "--patch", "-", "--format", "json", cwd=project.path, stdin=MAIL + patch)
    assert ended.status == 1, ended.err
    assert [one["code"] for one in ended.json["findings"]] == ["undefined-name"]
    assert any("has the change of the patch" in note for note in ended.json["run"]["notes"])


async def test_the_words_of_a_mailed_patch_are_the_commits_message(project: RealRepository) -> None:
    repository = await find_repository(project.path)
    oid = await commit_of_patch(repository, (MAIL + made_patch(project)).encode(), "0001.patch")
    assert "Greet people by their names" in project.git("show", "-s", "--format=%B", oid)
    assert project.git("rev-parse", f"{oid}^") == project.head


async def test_a_patch_that_makes_removes_and_renames_files_becomes_that_commit(project: RealRepository) -> None:
    project.git("mv", "README.md", "ABOUT.md")
    project.write("new file.py", "VALUE = 1\n")
    project.write("picture.bin", bytes(range(256)))
    project.git("rm", "-q", "--cached", "shop/orders.py")
    (project.path / "shop/orders.py").unlink()
    project.git("add", "-A")
    patch = project.run("diff", "--cached", "--binary", "HEAD")
    wanted = project.git("write-tree")
    project.git("reset", "-q", "--hard")
    oid = await commit_of_patch(await find_repository(project.path), patch, "all.diff")
    assert project.git("rev-parse", f"{oid}^{{tree}}") == wanted


async def test_an_empty_patch_makes_an_empty_commit_and_a_repository_without_commits_takes_one(tmp_path: Path) -> None:
    repository = RealRepository(tmp_path / "new")
    repository.path.mkdir()
    repository.git("init", "-q")
    found = await find_repository(repository.path)
    added = b"--- /dev/null\n+++ b/a.py\n@@ -0,0 +1 @@\n+VALUE = 1\n"
    oid = await commit_of_patch(found, added, "a.diff")
    assert repository.tree(oid) == {"a.py": b"VALUE = 1\n"}
    empty = await commit_of_patch(found, b"\n", "nothing.diff")
    assert repository.tree(empty) == {}


@pytest.mark.parametrize(
    ("patch", "words"),
    [
        (b"no patch at all", "No valid patches"),
        (b"--- a/gone.py\n+++ b/gone.py\n@@ -1 +1 @@\n-x\n+y\n", "neither forwards nor in reverse"),
        (b"--- /dev/null\n+++ b/../outside.py\n@@ -0,0 +1 @@\n+x\n", "invalid path"),
        (b"--- /dev/null\n+++ b/.git/hooks/post-commit\n@@ -0,0 +1 @@\n+x\n", "invalid path"),
        (b"--- a/README.md\n+++ b/README.md\n@@ -1,9 +1,9 @@\n-shop\n", "corrupt patch"),
        (b"x" * (LARGEST_PATCH + 1), "larger than 64 MiB"),
    ],
    ids=["words", "unknown file", "outside", "git directory", "cut", "too large"],
)
async def test_what_is_no_patch_of_this_repository_is_refused_by_name(
    project: RealRepository, patch: bytes, words: str
) -> None:
    repository = await find_repository(project.path)
    before = project.state()
    with pytest.raises(OutpostError) as refused:
        await commit_of_patch(repository, patch, "odd.diff")
    assert refused.value.code == "configuration"
    assert "--patch odd.diff: " in refused.value.message
    assert words in refused.value.message
    assert project.state() == before
    assert (await run_git(repository, ["status", "--porcelain"])).stdout == b" M shop/orders.py\n"


def test_a_missing_patch_file_and_two_scopes_are_wrong_usage(program: Program, project: RealRepository) -> None:
    ended = program("review", "--patch", "gone.diff", cwd=project.path)
    assert (ended.status, ended.out) == (2, "")
    assert "--patch gone.diff: No such file" in ended.err
    assert program("review", "--patch", "-", "--staged", cwd=project.path, stdin="").status == 2


def test_a_baseline_leaves_only_what_is_new_also_when_lines_have_moved(
    program: Program, project: RealRepository, tmp_path: Path
) -> None:
    report = tmp_path / "baseline.sarif"
    made = program("review", "--format", "sarif", "--output", str(report), cwd=project.path)
    assert made.status == 1, made.err
    project.write("shop/orders.py", "# one\n# two\ndef area(r):\n    return math.pi * r\n")
    same = program("review", "--baseline", str(report), cwd=project.path)
    assert same.status == 0, same.err
    assert "No findings." in same.out
    assert f"1 known from {report} and not shown" in same.err
    project.write("other.py", "print(undefined_name)\n")
    ended = program("review", "--baseline", str(report), "--format", "sarif", cwd=project.path)
    assert ended.status == 1
    [result] = ended.json["runs"][0]["results"]
    assert result["baselineState"] == "new"
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "other.py"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "No such file"),
        (b"not json", "it is no JSON"),
        (b"\xff\xfe", "it is no JSON"),
        (b"[" * 200_000, "it is no JSON"),
        (b"[]", "it is no SARIF report"),
        (b'{"runs": 1}', "it is no SARIF report"),
        (b'{"runs": [{"results": [{"ruleId": "x"}]}]}', "no result in it has a fingerprint"),
    ],
)
def test_a_baseline_that_cannot_be_compared_with_is_refused(tmp_path: Path, content: bytes | None, words: str) -> None:
    file = tmp_path / "report.sarif"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(OutpostError) as refused:
        read_baseline(str(file))
    assert refused.value.code == "configuration"
    assert f"--baseline {file}: " in refused.value.message
    assert words in refused.value.message


def test_a_report_without_results_is_a_baseline_that_knows_nothing(tmp_path: Path) -> None:
    file = tmp_path / "report.sarif"
    file.write_text(json.dumps({"version": "2.1.0", "runs": [{"results": []}, {}, 3]}))
    assert read_baseline(str(file)) == frozenset()
