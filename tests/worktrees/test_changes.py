from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from outpost_lsp.errors import OutpostError
from outpost_lsp.worktrees.changed_lines import changed_files_and_lines
from outpost_lsp.worktrees.changes import (
    change_set,
    changed_files,
    file_at,
    merge_base,
    patch,
)
from outpost_lsp.worktrees.git import find_repository, run_git
from outpost_lsp.worktrees.objects import empty_tree
from outpost_lsp.worktrees.snapshot import take_snapshot
from outpost_lsp.worktrees.worktree import Worktree, open_worktree
from tests.support.repositories import Case, RealRepository, make_repository


async def opened(repository: RealRepository, folder: Path, run_id: str = "run") -> Worktree:
    found = await find_repository(repository.path)
    snapshot = await take_snapshot(found)
    return await open_worktree(found, snapshot.commit, folder, run_id=run_id)


async def test_SNAP_05_commits_staged_unstaged_and_new_files_count_together(
    repository: RealRepository, tmp_path: Path
) -> None:
    for name in ("unstaged.txt", "staged.txt", "gone.txt", "moved.txt"):
        repository.write(name, f"{name}\nmore\nlines\n")
    repository.commit_all()
    repository.write("a.txt", "the user's\n")
    worktree = await opened(repository, tmp_path / "trees")
    inside = RealRepository(worktree.directory)
    inside.write("committed.txt", "committed\n")
    inside.git("add", "committed.txt")
    inside.git("commit", "-q", "-m", "by the agent")
    inside.write("staged.txt", "staged\n")
    inside.git("add", "staged.txt")
    inside.git("rm", "-q", "gone.txt")
    inside.git("mv", "moved.txt", "to.txt")
    inside.write("unstaged.txt", "unstaged.txt\nMORE\nlines\n")
    inside.write("new.bin", b"\0\1\2")
    (inside.path / "link").symlink_to("a.txt")
    changes = await change_set(worktree.repository, worktree.commit)
    assert [(file.path, file.status, file.old_path, file.insertions, file.deletions) for file in changes.files] == [
        ("committed.txt", "added", None, 1, 0),
        ("gone.txt", "deleted", None, 0, 3),
        ("link", "added", None, 1, 0),
        ("new.bin", "added", None, 0, 0),
        ("staged.txt", "modified", None, 1, 3),
        ("to.txt", "renamed", "moved.txt", 0, 0),
        ("unstaged.txt", "modified", None, 1, 1),
    ]
    by_path = {file.path: file for file in changes.files}
    assert by_path["new.bin"].binary
    assert (by_path["link"].old_mode, by_path["link"].new_mode) == ("", "120000")
    assert "a.txt" not in by_path
    assert inside.git("status", "--porcelain").splitlines()[0] == "?? link" or "link" in inside.git("status", "-s")


@pytest.mark.parametrize("how", ["left", "staged", "committed"])
async def test_SNAP_05_a_repository_of_its_own_that_an_agent_made_is_part_of_the_result_but_for_its_history(
    repository: RealRepository, tmp_path: Path, how: str
) -> None:
    worktree = await opened(repository, tmp_path / "trees")
    inside = RealRepository(worktree.directory)
    inner = make_repository(worktree.directory / "made", {"one.py": "1\n", "deep/two.py": "2\n", ".gitignore": "*.o\n"})
    inner.write("x.o", "ignored\n")
    inner.write("later.py", "not committed\n")
    (inner.path / "out").symlink_to(repository.path)
    if how != "left":
        inside.git("-c", "advice.addEmbeddedRepo=false", "add", "-A")
    if how == "committed":
        inside.git("commit", "-q", "-m", "by the agent")
    changes = await worktree.freeze()
    assert [(file.path, file.status, file.new_mode) for file in changes.files] == [
        ("made/.gitignore", "added", "100644"),
        ("made/deep/two.py", "added", "100644"),
        ("made/later.py", "added", "100644"),
        ("made/one.py", "added", "100644"),
        ("made/out", "added", "120000"),
    ]
    [note] = changes.notes
    assert "made/" in note
    assert "history" in note
    inner.write("later.py", "again\n")
    [file] = [file for file in (await worktree.freeze()).files if file.path == "made/later.py"]
    assert repository.git("cat-file", "blob", file.new_oid) == "again"
    await worktree.close(keep=False)


async def test_REL_01_a_file_that_a_killed_process_was_just_writing_is_no_change(
    repository: RealRepository, tmp_path: Path
) -> None:
    (repository.path / ".outpost-0123456789abcdef.old").write_text("of an apply\n")
    worktree = await opened(repository, tmp_path / "trees")
    (worktree.directory / ".outpost-0123456789abcdef.tmp").write_text("half a fi")
    (worktree.directory / "new").mkdir()
    (worktree.directory / "new" / ".outpost-fedcba9876543210.tmp").write_text("")
    assert (await worktree.changes()).is_empty
    (worktree.directory / ".outpost-notes.tmp").write_text("an agent's\n")
    assert [file.path for file in (await worktree.changes()).files] == [".outpost-notes.tmp"]
    await worktree.close(keep=False)


async def test_SNAP_05_a_repository_of_its_own_without_files_is_no_empty_result(
    repository: RealRepository, tmp_path: Path
) -> None:
    worktree = await opened(repository, tmp_path / "trees")
    RealRepository(worktree.directory).git("init", "-q", "made")
    changes = await worktree.changes()
    assert not changes.files
    assert not changes.is_empty
    await worktree.close(keep=False)


async def test_SEC_24_a_change_set_is_frozen_and_kept_by_the_worktree_alone(
    repository: RealRepository, tmp_path: Path
) -> None:
    worktree = await opened(repository, tmp_path / "trees")
    (worktree.directory / "a.txt").write_text("frozen\n")
    changes = await worktree.freeze()
    assert RealRepository(worktree.directory).git("status", "--porcelain") == ""
    (worktree.directory / "a.txt").write_text("later\n")
    assert await file_at(worktree.origin, changes.commit, "a.txt", 1_000) == b"frozen\n"
    repository.git("gc", "-q", "--prune=now")
    assert await file_at(worktree.origin, changes.commit, "a.txt", 1_000) == b"frozen\n"
    assert repository.git("for-each-ref", "--format=%(refname)") == "refs/heads/main"
    await worktree.close(keep=False)
    repository.git("gc", "-q", "--prune=now")
    with pytest.raises(OutpostError):
        await file_at(worktree.origin, changes.commit, "a.txt", 1_000)


async def test_an_untouched_worktree_has_an_empty_change_set_whatever_is_ignored(
    repository: RealRepository, tmp_path: Path
) -> None:
    repository.write(".gitignore", "*.log\n")
    worktree = await opened(repository, tmp_path / "trees")
    (worktree.directory / "x.log").write_text("scratch")
    os.utime(worktree.directory / "a.txt")
    changes = await change_set(worktree.repository, worktree.commit)
    assert changes.is_empty
    assert changes.commit == worktree.commit


async def test_a_broken_index_of_the_agent_does_not_hide_its_changes(
    repository: RealRepository, tmp_path: Path
) -> None:
    worktree = await opened(repository, tmp_path / "trees")
    (worktree.repository.git_dir / "index").write_bytes(b"broken")
    (worktree.directory / "a.txt").write_text("changed\n")
    (worktree.directory / "src" / "main.py").unlink()
    changes = await change_set(worktree.repository, worktree.commit)
    assert [(file.path, file.status) for file in changes.files] == [("a.txt", "modified"), ("src/main.py", "deleted")]


async def test_a_rewritten_git_file_of_the_worktree_redirects_nothing(
    repository: RealRepository, tmp_path: Path
) -> None:
    other = make_repository(tmp_path / "other", {"keep.txt": "keep\n"})
    worktree = await opened(repository, tmp_path / "trees")
    before = other.state()
    (worktree.directory / ".git").write_text(f"gitdir: {other.path}/.git\n")
    (worktree.directory / "a.txt").write_text("changed\n")
    changes = await change_set(worktree.repository, worktree.commit)
    assert [file.path for file in changes.files] == ["a.txt"]
    assert other.state() == before
    await worktree.close(keep=False)
    assert other.state() == before


async def test_a_patch_rebuilds_the_result(repository: RealRepository, tmp_path: Path) -> None:
    worktree = await opened(repository, tmp_path / "trees")
    (worktree.directory / "new.bin").write_bytes(bytes(range(256)))
    (worktree.directory / "a.txt").write_bytes(b"one\r\ntwo\nno end")
    changes = await change_set(worktree.repository, worktree.commit)
    text = await patch(worktree.origin, worktree.commit, changes.commit, max_output=1_000_000)
    repository.run("apply", "-", stdin=text)
    assert (repository.path / "new.bin").read_bytes() == bytes(range(256))
    assert (repository.path / "a.txt").read_bytes() == b"one\r\ntwo\nno end"
    with pytest.raises(OutpostError, match="larger than 10 bytes"):
        await patch(worktree.origin, worktree.commit, changes.commit, max_output=10)


async def test_changed_lines_are_half_open_ranges_of_the_new_side(repository: RealRepository) -> None:
    repository.write("long.txt", "".join(f"{number}\n" for number in range(1, 21)))
    first = repository.commit_all()
    lines = [f"{number}\n" for number in range(1, 21)]
    lines[2] = "three\n"
    lines[9:12] = []
    lines[15:15] = ["new\n", "new\n"]
    repository.write("long.txt", "".join(lines))
    repository.write("added.txt", "a\nb")
    repository.write("empty.txt", "")
    repository.write("blob.bin", b"\0\1")
    (repository.path / "a.txt").unlink()
    repository.git("mv", "src/main.py", "src/renamed.py")
    second = repository.commit_all()
    found = await find_repository(repository.path)
    ranges = dict((await changed_files_and_lines(found, first, second))[1])
    assert ranges == {
        "added.txt": ((0, 2),),
        "blob.bin": (),
        "empty.txt": (),
        "long.txt": ((2, 3), (9, 9), (15, 17)),
        "src/renamed.py": (),
    }
    assert dict((await changed_files_and_lines(found, first, second, ["added.txt"]))[1]) == {"added.txt": ((0, 2),)}
    assert set((await changed_files_and_lines(found, empty_tree(second), second))[1]) == {
        "added.txt", "blob.bin", "empty.txt", "long.txt", "src/renamed.py",
    }  # fmt: skip


async def test_names_and_contents_that_look_like_a_diff_do_not_confuse_the_lines(repository: RealRepository) -> None:
    first = repository.head
    repository.write("x\n@@ -1 +7,9 @@", "one\n")
    repository.write("y\ndiff --git a/y b/y", "one\ntwo\n")
    repository.write("z.txt", "diff --git a/q b/q\n@@ -0,0 +1,9 @@\n")
    (repository.path / "a.txt").unlink()
    (repository.path / "a.txt").symlink_to("z.txt")
    second = repository.commit_all()
    found = await find_repository(repository.path)
    assert dict((await changed_files_and_lines(found, first, second))[1]) == {
        "a.txt": ((0, 1),),
        "x\n@@ -1 +7,9 @@": ((0, 1),),
        "y\ndiff --git a/y b/y": ((0, 2),),
        "z.txt": ((0, 2),),
    }


@pytest.mark.parametrize("quotes", ["true", "false"])
async def test_names_that_git_quotes_are_told_as_they_are(repository: RealRepository, quotes: str) -> None:
    names = [*(f"c{chr(code)}d" for code in (*range(1, 32), 127)), 'q"uo\\te', "é and ☃", "a\\101", '"whole"', " s p "]
    repository.git("config", "core.quotePath", quotes)
    repository.write("old\tname", "one\ntwo\nthree\n")
    first = repository.commit_all()
    for name in names:
        repository.write(name, f"{name!r}\n")
    repository.write(os.fsdecode(b"no \xff UTF-8"), "x\n")
    (repository.path / "old\tname").rename(repository.path / "new\nname")
    second = repository.commit_all()
    found = await find_repository(repository.path)
    files, lines, unnamed = await changed_files_and_lines(found, first, second)
    assert files == tuple(replace(file, insertions=0) for file in await changed_files(found, first, second))
    assert [(file.path, file.old_path) for file in files if file.old_path] == [("new\nname", "old\tname")]
    assert unnamed == 1
    assert dict(lines) == {**dict.fromkeys(names, ((0, 1),)), "new\nname": ()}


async def test_r04_odd_names_are_listed_exactly(case: Callable[[str], Case]) -> None:
    odd = case("r04")
    found = await find_repository(odd.path)
    snapshot = await take_snapshot(found)
    files = await changed_files(found, snapshot.head, snapshot.commit)
    expected = [*odd.fact_bytes("changed"), *odd.fact_bytes("untracked"), *odd.fact_bytes("renamed_to")]
    listed = {file.path for file in files if file.status != "deleted"}
    assert listed == {name.decode() for name in expected}
    gone = {file.path for file in files if file.status == "deleted"} | {
        file.old_path for file in files if file.old_path
    }
    assert gone == {name.decode() for name in odd.fact_bytes("deleted")} | {"old name.txt"}
    one = await changed_files(found, snapshot.head, snapshot.commit, ["*.txt"])
    assert [file.path for file in one] == ["*.txt"]


async def test_file_at_gives_exact_bytes_and_nothing_for_what_is_no_file(repository: RealRepository) -> None:
    repository.write("bytes.bin", b"\xff\xfe\r\n\0")
    repository.write(":(glob)*", "magic\n")
    commit = repository.commit_all()
    found = await find_repository(repository.path)
    assert await file_at(found, commit, "bytes.bin", 5) == b"\xff\xfe\r\n\0"
    assert await file_at(found, commit, ":(glob)*", 100) == b"magic\n"
    assert await file_at(found, commit, "src", 100) is None
    assert await file_at(found, commit, "missing", 100) is None
    with pytest.raises(OutpostError, match="the limit is 4") as caught:
        await file_at(found, commit, "bytes.bin", 4)
    assert caught.value.details["reason"] == "size"


async def test_the_merge_base_is_found(repository: RealRepository) -> None:
    base = repository.head
    found = await find_repository(repository.path)
    repository.git("checkout", "-q", "-b", "topic")
    repository.write("t", "t")
    topic = repository.commit_all()
    repository.git("checkout", "-q", "main")
    repository.write("m", "m")
    main = repository.commit_all()
    assert await merge_base(found, topic, main) == base
    repository.git("checkout", "-q", "--orphan", "alone")
    alone = repository.commit_all()
    assert await merge_base(found, alone, main) is None


async def test_the_empty_tree_works_where_names_are_sha256(tmp_path: Path) -> None:
    path = tmp_path / "sha256"
    path.mkdir()
    repository = RealRepository(path)
    repository.git("init", "-q", "-b", "main", "--object-format=sha256")
    repository.write("a.txt", "a\n")
    commit = repository.commit_all()
    found = await find_repository(path)
    assert [file.path for file in await changed_files(found, empty_tree(commit), commit)] == ["a.txt"]
    assert (await run_git(found, ["cat-file", "-t", commit])).stdout == b"commit\n"
