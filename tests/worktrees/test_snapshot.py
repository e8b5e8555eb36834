from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from outpost_lsp.errors import OutpostError
from outpost_lsp.worktrees.git import find_repository
from outpost_lsp.worktrees.snapshot import Snapshot, take_snapshot
from tests.support.repositories import Case, RealRepository, make_repository


async def snapshot_of(repository: RealRepository, **options: object) -> Snapshot:
    found = await find_repository(repository.path)
    return await take_snapshot(found, **options)  # type: ignore[arg-type]


async def test_SNAP_01_the_users_state_is_byte_identical_also_beside_a_lock(repository: RealRepository) -> None:
    repository.write("stashed.txt", "aside\n")
    repository.git("stash", "-u", "-q")
    repository.git("branch", "other")
    repository.write("a.txt", "staged\n")
    repository.git("add", "a.txt")
    repository.write("a.txt", "staged and changed\n")
    repository.write("new.txt", "new\n")
    repository.write(".git/index.lock", "")
    before = repository.state()
    snapshot = await snapshot_of(repository, unsaved={"src/main.py": "unsaved\n", "fresh.py": "x\n"})
    await snapshot_of(repository, view="index")
    assert repository.state() == before
    assert repository.tree(snapshot.commit) == {
        "a.txt": b"staged and changed\n",
        "fresh.py": b"x\n",
        "new.txt": b"new\n",
        "src/main.py": b"unsaved\n",
    }
    repository.git("fsck", "--strict")


async def test_SNAP_01_everything_the_user_sees_is_in_it(repository: RealRepository) -> None:
    for name in ("gone.txt", "renamed.txt", "script.sh", "kept.txt"):
        repository.write(name, f"{name}\n")
    repository.write(".gitignore", "*.log\nbuild/\n")
    repository.commit_all()
    (repository.path / "gone.txt").unlink()
    repository.git("mv", "renamed.txt", "moved.txt")
    (repository.path / "script.sh").chmod(0o755)
    (repository.path / "link").symlink_to("kept.txt")
    repository.write("x.log", "noise")
    repository.write("build/a.o", "noise")
    repository.write("build/b.o", "noise")
    snapshot = await snapshot_of(repository)
    assert sorted(repository.tree(snapshot.commit)) == sorted(
        [".gitignore", "a.txt", "kept.txt", "link", "moved.txt", "script.sh", "src/main.py"]
    )
    modes = repository.git("ls-tree", snapshot.commit, "script.sh", "link")
    assert modes.splitlines()[0].startswith("120000")
    assert modes.splitlines()[1].startswith("100755")
    assert snapshot.ignored_left_out == 2
    assert snapshot.parent == snapshot.head == repository.head
    assert repository.git("rev-parse", f"{snapshot.commit}^") == repository.head
    assert repository.git("rev-parse", f"{snapshot.commit}^{{tree}}") == snapshot.tree


async def test_a_change_of_the_same_size_within_one_tick_of_the_clock_is_seen(repository: RealRepository) -> None:
    for number in range(20):
        repository.write("a.txt", f"before {number:02}\n")
        repository.git("add", "a.txt")
        status = (repository.path / "a.txt").stat()
        repository.write("a.txt", f"after  {number:02}\n")
        os.utime(repository.path / "a.txt", ns=(status.st_atime_ns, status.st_mtime_ns))
        os.utime(repository.path / ".git" / "index", ns=(status.st_atime_ns, status.st_mtime_ns))
        snapshot = await snapshot_of(repository)
        assert repository.tree(snapshot.commit)["a.txt"] == f"after  {number:02}\n".encode()


async def test_the_index_view_is_what_a_commit_would_hold(repository: RealRepository) -> None:
    repository.write("a.txt", "staged\n")
    repository.git("add", "a.txt")
    repository.write("a.txt", "later\n")
    repository.write("untracked.txt", "x\n")
    repository.write("intended.txt", "x\n")
    repository.git("add", "-N", "intended.txt")
    snapshot = await snapshot_of(repository, view="index", unsaved={"a.txt": "unsaved"})
    assert repository.tree(snapshot.commit) == {"a.txt": b"staged\n", "src/main.py": b"print('hello')\n"}
    assert snapshot.parent == repository.head


async def test_the_head_and_the_commit_view_are_those_commits(repository: RealRepository) -> None:
    first = repository.head
    repository.write("a.txt", "second\n")
    second = repository.commit_all()
    repository.write("a.txt", "dirty\n")
    head = await snapshot_of(repository, view="head")
    assert (head.commit, head.parent, head.head) == (second, first, second)
    old = await snapshot_of(repository, view=first)
    assert (old.commit, old.parent, old.head) == (first, "", second)


async def test_the_head_view_of_a_repository_without_commits_is_refused(tmp_path: Path) -> None:
    empty = make_repository(tmp_path / "empty", commit=False)
    with pytest.raises(OutpostError, match="has no commit yet"):
        await snapshot_of(empty, view="head")


async def test_SNAP_02_unmerged_and_intended_entries_have_the_content_of_their_files(
    repository: RealRepository,
) -> None:
    repository.git("checkout", "-q", "-b", "side")
    repository.write("a.txt", "theirs\n")
    repository.write("both.txt", "theirs\n")
    repository.commit_all()
    repository.git("checkout", "-q", "main")
    repository.write("a.txt", "ours\n")
    repository.write("both.txt", "ours\n")
    repository.commit_all()
    with pytest.raises(AssertionError):
        repository.git("merge", "side")
    assert "UU a.txt" in repository.git("status", "--porcelain")
    (repository.path / "both.txt").unlink()
    repository.write("intended.txt", "intended\n")
    repository.git("add", "-N", "intended.txt")
    before = repository.state()
    snapshot = await snapshot_of(repository)
    tree = repository.tree(snapshot.commit)
    assert tree["a.txt"] == (repository.path / "a.txt").read_bytes()
    assert b"<<<<<<<" in tree["a.txt"]
    assert tree["intended.txt"] == b"intended\n"
    assert "both.txt" not in tree
    staged = repository.tree((await snapshot_of(repository, view="index")).commit)
    assert staged["a.txt"] == tree["a.txt"]
    assert repository.state() == before


async def test_SNAP_02_r03_a_repository_without_commits_gets_a_parentless_snapshot(case: Callable[[str], Case]) -> None:
    unborn = case("r03")
    before = unborn.state()
    snapshot = await snapshot_of(unborn)
    assert (snapshot.head, snapshot.parent) == ("", "")
    expected = unborn.expected["expect"]["snapshot"]
    tree = {name: content.decode() for name, content in unborn.tree(snapshot.commit).items()}
    assert tree["app.py"] == expected["app.py"]
    assert tree["notes.txt"] == expected["notes.txt"]
    assert ".gitignore" in tree
    assert "secret.env" not in tree
    assert unborn.state() == before
    assert hashlib.sha256(unborn.run("ls-files", "-s")).hexdigest() == unborn.facts["index_digest"]
    assert unborn.git("for-each-ref") == ""
    assert unborn.git("symbolic-ref", "HEAD") == "refs/heads/main"


async def test_r04_odd_names_are_taken_exactly(case: Callable[[str], Case]) -> None:
    odd = case("r04")
    snapshot = await snapshot_of(odd)
    tree = odd.tree(snapshot.commit)
    for name in odd.fact_bytes("changed"):
        assert tree[os.fsdecode(name)] == b"first\nSECOND\nthird\n"
    for name in (*odd.fact_bytes("untracked"), *odd.fact_bytes("renamed_to"), *odd.fact_bytes("not_utf8")):
        assert os.fsdecode(name) in tree
    for name in odd.fact_bytes("deleted"):
        assert os.fsdecode(name) not in tree
    assert tree["ab.txt"] == tree["stay.txt"] == b"first\nsecond\nthird\n"


async def test_r06_a_stale_lock_of_somebody_else_does_not_stop_it(case: Callable[[str], Case]) -> None:
    left = case("r06")
    before = left.state()
    snapshot = await snapshot_of(left)
    assert left.tree(snapshot.commit)["a.txt"] == b"two\n"
    assert left.state() == before


async def test_uncommitted_and_untracked_work_can_be_left_out(repository: RealRepository) -> None:
    repository.write("a.txt", "changed\n")
    repository.write("staged.txt", "staged\n")
    repository.git("add", "staged.txt")
    repository.write("new.txt", "new\n")
    original = b"one\ntwo\nthree\n"
    tree = repository.tree((await snapshot_of(repository, uncommitted=False)).commit)
    assert (tree["a.txt"], "staged.txt" in tree, tree["new.txt"]) == (original, False, b"new\n")
    tree = repository.tree((await snapshot_of(repository, untracked=False, unsaved={"buffer.py": "x"})).commit)
    assert (tree["a.txt"], tree["staged.txt"]) == (b"changed\n", b"staged\n")
    assert "new.txt" not in tree
    assert "buffer.py" not in tree
    tree = repository.tree((await snapshot_of(repository, uncommitted=False, untracked=False)).commit)
    assert tree == repository.tree("HEAD")


async def test_the_largest_untracked_files_are_left_out_beyond_the_limit_and_named(repository: RealRepository) -> None:
    repository.write("huge.bin", b"\0" * 3 * 1024 * 1024)
    repository.write("large.bin", b"\0" * 1024 * 1024)
    repository.write("small.txt", "small\n")
    snapshot = await snapshot_of(repository, max_untracked_mib=2)
    assert sorted(repository.tree(snapshot.commit)) == ["a.txt", "large.bin", "small.txt", "src/main.py"]
    assert any("huge.bin" in note and "max_untracked_mib" in note for note in snapshot.notes)
    assert not any("large.bin" in note for note in snapshot.notes)


async def test_unsaved_text_lands_where_the_editor_would_save_it(repository: RealRepository, tmp_path: Path) -> None:
    repository.git("config", "core.autocrlf", "true")
    repository.write(".gitignore", "secret.env\n")
    repository.write("run.sh", "#!/bin/sh\n", mode=0o755)
    repository.commit_all()
    (repository.path / "alias.sh").symlink_to("run.sh")
    (repository.path / "folder").symlink_to("src")
    (repository.path / "out").symlink_to(tmp_path)
    make_repository(repository.path / "nested", {"x": "x"})
    snapshot = await snapshot_of(
        repository,
        unsaved={
            "a.txt": "one\r\n",
            "alias.sh": "#!/bin/sh\necho unsaved\n",
            "folder/main.py": b"raw bytes \xff\n",
            "deep/er/new.py": "new = 1\n",
            "secret.env": "KEY=1",
            "*.env": "kept",
            "nested/x": "y",
            "out/file": "z",
            "../above": "z",
            ".git/config": "z",
        },
    )
    tree = repository.tree(snapshot.commit)
    assert tree["a.txt"] == b"one\n"
    assert tree["run.sh"] == b"#!/bin/sh\necho unsaved\n"
    assert tree["alias.sh"] == b"run.sh"
    assert tree["src/main.py"] == b"raw bytes \xff\n"
    assert tree["deep/er/new.py"] == b"new = 1\n"
    assert "secret.env" not in tree
    assert tree["*.env"] == b"kept"
    assert not {"nested/x", "out/file"} & set(tree)
    assert repository.git("ls-tree", snapshot.commit, "run.sh").startswith("100755")
    notes = " ".join(snapshot.notes)
    for name in ("secret.env", "nested/x", "out/file", "../above", ".git/config"):
        assert name in notes


async def test_unsaved_text_below_a_submodule_is_left_out(repository: RealRepository, tmp_path: Path) -> None:
    outer = make_repository(tmp_path / "outer", {"x": "x"})
    outer.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(repository.path), "inner")
    outer.commit_all()
    snapshot = await snapshot_of(outer, unsaved={"inner/a.txt": "unsaved\n"})
    assert outer.git("ls-tree", snapshot.commit, "inner").startswith("160000 commit")
    assert "inner/a.txt" in " ".join(snapshot.notes)


async def test_a_submodule_is_taken_by_its_commit_and_a_nested_repository_is_noted(
    repository: RealRepository, tmp_path: Path
) -> None:
    outer = make_repository(tmp_path / "outer", {"x": "x"})
    outer.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(repository.path), "inner")
    outer.commit_all()
    inner = RealRepository(outer.path / "inner")
    inner.write("a.txt", "committed inside\n")
    moved = inner.commit_all()
    inner.write("a.txt", "dirty inside\n")
    make_repository(outer.path / "stray", {"y": "y"})
    snapshot = await snapshot_of(outer)
    assert outer.git("rev-parse", f"{snapshot.commit}:inner") == moved
    assert "stray" not in outer.git("ls-tree", "--name-only", snapshot.commit)
    assert any("stray" in note for note in snapshot.notes)


async def test_what_is_no_file_is_left_out_and_said(repository: RealRepository) -> None:
    os.mkfifo(repository.path / "pipe")
    (repository.path / "a.txt").unlink()
    os.mkfifo(repository.path / "a.txt")
    snapshot = await snapshot_of(repository)
    assert "pipe" not in repository.tree(snapshot.commit)
    assert repository.tree(snapshot.commit)["a.txt"] == b"one\ntwo\nthree\n"
    assert any("a.txt" in note for note in snapshot.notes)


async def test_files_folders_and_links_may_change_places(repository: RealRepository, tmp_path: Path) -> None:
    for name in ("becomes_folder", "becomes_link", "folder_becomes_file/x", "folder_becomes_link/x"):
        repository.write(name, "x\n")
    repository.commit_all()
    for name in ("becomes_folder", "becomes_link", "folder_becomes_file/x", "folder_becomes_link/x"):
        (repository.path / name).unlink()
    repository.write("becomes_folder/inside", "y\n")
    (repository.path / "becomes_link").symlink_to("a.txt")
    (repository.path / "folder_becomes_file").rmdir()
    (repository.path / "folder_becomes_link").rmdir()
    repository.write("folder_becomes_file", "y\n")
    (repository.path / "folder_becomes_link").symlink_to(tmp_path)
    snapshot = await snapshot_of(repository)
    tree = repository.tree(snapshot.commit)
    assert tree["becomes_folder/inside"] == b"y\n"
    assert tree["becomes_link"] == b"a.txt"
    assert tree["folder_becomes_file"] == b"y\n"
    assert tree["folder_becomes_link"] == str(tmp_path).encode()
    assert snapshot.notes == ()


async def test_detached_linked_sparse_and_split_index_checkouts_are_snapshot_alike(
    repository: RealRepository, tmp_path: Path
) -> None:
    repository.write("docs/guide.md", "guide\n")
    repository.commit_all()
    repository.git("worktree", "add", "-q", "--detach", str(tmp_path / "linked"))
    linked = RealRepository(tmp_path / "linked")
    linked.write("a.txt", "linked\n")
    assert linked.tree((await snapshot_of(linked)).commit)["a.txt"] == b"linked\n"

    repository.git("update-index", "--split-index")
    shared = sorted(repository.git_dir.glob("sharedindex.*"))
    repository.write("a.txt", "split\n")
    assert repository.tree((await snapshot_of(repository)).commit)["a.txt"] == b"split\n"
    assert sorted(repository.git_dir.glob("sharedindex.*")) == shared
    repository.git("update-index", "--no-split-index")

    repository.git("sparse-checkout", "set", "--cone", "--sparse-index", "src")
    repository.write("src/main.py", "sparse\n")
    tree = repository.tree((await snapshot_of(repository)).commit)
    assert tree["src/main.py"] == b"sparse\n"
    assert tree["docs/guide.md"] == b"guide\n"


async def test_a_repository_with_sha256_names_works(tmp_path: Path) -> None:
    path = tmp_path / "sha256"
    path.mkdir()
    repository = RealRepository(path)
    repository.git("init", "-q", "-b", "main", "--object-format=sha256")
    repository.write("a.txt", "a\n")
    repository.commit_all()
    repository.write("a.txt", "b\n")
    snapshot = await snapshot_of(repository)
    assert len(snapshot.commit) == 64
    assert repository.tree(snapshot.commit)["a.txt"] == b"b\n"


async def test_a_snapshot_that_takes_too_long_is_a_timeout_that_names_the_setting(repository: RealRepository) -> None:
    found = await find_repository(repository.path)
    with pytest.raises(OutpostError, match=r"sandbox\.git_timeout_s") as caught:
        await take_snapshot(found, deadline_s=0.000_001)
    assert caught.value.code == "timeout"
