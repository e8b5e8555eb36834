"""A worktree that is filled on demand, compared with one that was checked out whole."""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

import pytest

from outpost_lsp.domain.sandbox import Command, WorktreeFiles
from outpost_lsp.errors import OutpostError
from outpost_lsp.sandbox.files import WorktreeFilesOnDisk
from outpost_lsp.sandbox.files_on_demand import FilesOnDemand
from outpost_lsp.sandbox.lease import HostLease
from outpost_lsp.worktrees.git import find_repository
from outpost_lsp.worktrees.on_demand import pays
from outpost_lsp.worktrees.registration import Owner
from outpost_lsp.worktrees.snapshot import take_snapshot
from outpost_lsp.worktrees.worktree import Worktree, open_worktree, reap
from tests.support.processes import dead_pid
from tests.support.repositories import RealRepository, make_repository

PATHS = [
    "root.txt", "src/main.py", "src/deep/er/x.txt", "src/deep/y.txt", "link/main.py", "src/up", "dangling", "out/secret",
    "docs/crlf.txt", "docs/tool.sh", "docs/back\\slash.txt", "docs", "src/deep", "no/such", "src/main.py/x", "é/ü.txt",
    "new/file.txt", "src/new.py", "src/ignored.log", "loop/x", ".", "link", "abs",
]  # fmt: skip


@pytest.fixture
def forest(tmp_path: Path) -> RealRepository:
    repository = make_repository(tmp_path / "repo", commit=False)
    repository.write("root.txt", "root\n")
    repository.write(".gitignore", "*.log\n")
    repository.write(".gitattributes", "crlf.txt text eol=crlf\n")
    repository.write("src/.gitignore", "*.tmp\n")
    repository.write("src/main.py", "import root\nneedle = 1\n")
    repository.write("src/deep/er/x.txt", "needle\n")
    repository.write("src/deep/y.txt", "y\n")
    repository.write("docs/crlf.txt", "one\r\nneedle\r\n")
    repository.write("docs/tool.sh", "#!/bin/sh\n", mode=0o755)
    repository.write("docs/back\\slash.txt", "back\n")
    repository.write("é/ü.txt", "needle ü\n")
    (repository.path / "link").symlink_to("src")
    (repository.path / "src" / "up").symlink_to("../docs/crlf.txt")
    (repository.path / "dangling").symlink_to("src/none")
    (repository.path / "out").symlink_to(tmp_path)
    (repository.path / "loop").symlink_to("loop")
    (repository.path / "abs").symlink_to("/etc/passwd")
    repository.commit_all()
    repository.write("src/main.py", "import root\nneedle = 2\n")
    repository.write("src/untracked.py", "needle\n")
    (tmp_path / "secret").write_text("secret\n")
    return repository


async def pair(repository: RealRepository, folder: Path) -> tuple[Worktree, Worktree]:
    found = await find_repository(repository.path)
    snapshot = await take_snapshot(found)
    whole = await open_worktree(found, snapshot.commit, folder, run_id="whole")
    lazy = await open_worktree(found, snapshot.commit, folder, run_id="lazy", fill="on demand")
    return whole, lazy


def files_of(worktree: Worktree) -> WorktreeFiles:
    if worktree.on_demand is None:
        return WorktreeFilesOnDisk(worktree.directory, worktree.git)
    return FilesOnDemand(worktree.directory, worktree.git, worktree.on_demand)


async def outcome(worktree: Worktree, files: WorktreeFiles, action: str, path: str, to: str) -> object:
    try:
        match action:
            case "read":
                return await files.read(path, limit=1_000)
            case "kind":
                return await files.kind(path)
            case "listing":
                return list(await files.listing(path))
            case "write":
                return await files.write(path, f"needle {path}\n".encode())
            case "overwrite":
                return await files.write(path, b"needle again\n", create=False)
            case "delete":
                return await files.delete(path)
            case "move":
                return await files.move(path, to)
            case _:
                arguments = {
                    "grep": ["grep", "-n", "-z", "-I", "--full-name", "--untracked", "-E", "-e", "needle", "--", "."],
                    "grep-src": ["grep", "-n", "--untracked", "-e", "needle", "--", "src"],
                    "status": ["status", "--porcelain=v1", "--untracked-files=all"],
                    "diff": ["diff"],
                    "diff-src": ["diff", "HEAD", "--", "src"],
                    "log": ["log", "-1", "--stat", "--format=%s"],
                }[action]
                result = await worktree.git(arguments)
                # A search in the object store sees line ends before their conversion, which no tool shows.
                return result.status, result.stdout.replace(b"\r\n", b"\n") if "grep" in action else result.stdout
    except OutpostError as error:
        return error.code, error.details.get("reason")


ACTIONS = [
    "read", "read", "kind", "listing", "write", "write", "overwrite", "delete", "move", "grep", "grep-src", "status",
    "diff", "diff-src", "log",
]  # fmt: skip


@pytest.mark.parametrize("seed", range(25))
async def test_nobody_can_tell_it_from_a_full_checkout(forest: RealRepository, tmp_path: Path, seed: int) -> None:
    random_ = random.Random(seed)
    before = forest.state()
    whole, lazy = await pair(forest, tmp_path / "trees")
    whole_files, lazy_files = files_of(whole), files_of(lazy)
    done = []
    for step in range(random_.randrange(5, 40)):
        action, path, to = random_.choice(ACTIONS), random_.choice(PATHS), random_.choice(PATHS)
        done.append((action, path, to))
        expected = await outcome(whole, whole_files, action, path, to)
        assert await outcome(lazy, lazy_files, action, path, to) == expected, done
        if step == 25 and seed % 2:
            await lazy.fill()
    changes = await whole.changes()
    assert (await lazy.changes()).tree == changes.tree
    for worktree, files in ((whole, whole_files), (lazy, lazy_files)):
        assert isinstance(files, WorktreeFilesOnDisk)
        assert (await worktree.changes(touched=files.touched)).tree == changes.tree
    await lazy.fill()
    assert await outcome(lazy, lazy_files, "status", "", "") == await outcome(whole, whole_files, "status", "", "")
    assert await outcome(lazy, lazy_files, "listing", ".", "") == await outcome(whole, whole_files, "listing", ".", "")
    assert everything(lazy.directory) == everything(whole.directory)
    assert (await lazy.freeze()).tree == (await whole.freeze()).tree
    assert RealRepository(lazy.directory).git("status", "--porcelain") == ""
    await whole.close(keep=False)
    await lazy.close(keep=False)
    assert forest.state() == before
    forest.git("fsck", "--strict")


def everything(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Every file below a folder with its mode and content; empty folders do not count."""
    found = {}
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        if name == ".git" or (path.is_dir() and not path.is_symlink()):
            continue
        content = os.fsencode(path.readlink()) if path.is_symlink() else path.read_bytes()
        found[name] = (path.lstat().st_mode, content)
    return found


async def test_only_what_is_asked_for_is_laid_out(forest: RealRepository, tmp_path: Path) -> None:
    _, lazy = await pair(forest, tmp_path / "trees")
    files = files_of(lazy)
    assert not (lazy.directory / "src").exists()
    assert await files.read("link/main.py", limit=100) == b"import root\nneedle = 2\n"
    assert sorted(path.name for path in (lazy.directory / "src").iterdir()) == ["main.py"]
    await files.listing(".")
    await lazy.git(["grep", "--untracked", "needle"])
    assert not (lazy.directory / "docs").exists()
    assert await files.read("src/up", limit=100) == b"one\r\nneedle\r\n"
    assert [path.name for path in (lazy.directory / "docs").iterdir()] == ["crlf.txt"]
    await lazy.close(keep=False)


@pytest.mark.skipif(sys.platform == "darwin", reason="its file systems have no such names")
async def test_names_that_are_no_text_are_told_as_in_a_full_checkout(forest: RealRepository, tmp_path: Path) -> None:
    forest.write(os.fsdecode(b"src/known\xff.py"), "x\n")
    whole, lazy = await pair(forest, tmp_path / "trees")
    for worktree in (whole, lazy):
        (worktree.directory / os.fsdecode(b"new\xff.py")).write_text("x\n")
        listing = await files_of(worktree).listing(".")
        assert listing.unnamed == ("new\udcff.py", "src/known\udcff.py")
        assert "src/main.py" in listing
        assert not any("\udcff" in name for name in listing)
        assert (await files_of(worktree).listing("src")).unnamed == ("src/known\udcff.py",)
        await worktree.close(keep=False)


async def test_a_command_sees_the_whole_tree(forest: RealRepository, tmp_path: Path) -> None:
    _, lazy = await pair(forest, tmp_path / "trees")
    files = files_of(lazy)
    await files.delete("src/deep/y.txt")
    await files.write("src/main.py", b"changed\n")
    lease = HostLease(
        lazy.directory, tmp_path / "home", lazy.git, {"PATH": os.environ["PATH"]}, files=files, prepare=lazy.fill
    )
    script = "find . -type f -not -name .git | sort; cat src/main.py; test -x docs/tool.sh && echo executable"
    assert lease.touched == {"src/deep/y.txt", "src/main.py"}
    result = await lease.invoke(Command(executable="sh", arguments=("-c", script)))
    assert lease.touched is None
    assert "./src/deep/er/x.txt\n" in result.stdout
    assert "./src/deep/y.txt" not in result.stdout
    assert result.stdout.endswith("changed\nexecutable\n")
    assert [file.path for file in (await lazy.changes()).files] == ["src/deep/y.txt", "src/main.py"]
    await lazy.close(keep=False)


async def test_SNAP_07_the_work_in_one_is_seen_after_its_process_died(forest: RealRepository, tmp_path: Path) -> None:
    found = await find_repository(forest.path)
    snapshot = await take_snapshot(found)
    for run_id in ("edited", "deleted", "read", "untouched"):
        lazy = await open_worktree(found, snapshot.commit, tmp_path / "trees", run_id=run_id, fill="on demand")
        files = files_of(lazy)
        if run_id == "edited":
            await files.write("src/main.py", b"work\n")
        elif run_id == "deleted":
            await files.delete("src/main.py")
        elif run_id == "read":
            await files.read("src/main.py", limit=100)
        assert lazy.on_demand is not None
        await lazy.on_demand.aclose()
        (lazy.repository.git_dir / "locked").write_text(Owner(run_id, snapshot.commit, dead_pid(), "1").reason)
    results = {each.run_id: each.state for each in await reap(found, tmp_path / "trees")}
    assert results == {"edited": "kept", "deleted": "kept", "read": "removed", "untouched": "removed"}


async def test_a_large_file_is_laid_out_by_git_itself(forest: RealRepository, tmp_path: Path) -> None:
    content = os.urandom(1_000_000) * 18
    forest.write("docs/large.bin", content)
    forest.commit_all()
    _, lazy = await pair(forest, tmp_path / "trees")
    assert await files_of(lazy).read("docs/large.bin", limit=len(content)) == content
    assert (await lazy.changes()).is_empty
    await lazy.close(keep=False)


async def test_it_is_chosen_for_large_repositories_without_submodules_only(
    forest: RealRepository, tmp_path: Path
) -> None:
    found = await find_repository(forest.path)
    assert not await pays(found, forest.head)
    for number in range(8_000):
        forest.write(f"many/{number // 100}/file-with-a-longer-name-{number}.txt", "")
    forest.commit_all()
    assert await pays(found, forest.head)
    worktree = await open_worktree(found, forest.head, tmp_path / "trees", run_id="run", fill="auto")
    assert worktree.on_demand is not None
    assert not (worktree.directory / "many").exists()
    await worktree.close(keep=False)
    forest.write(".gitmodules", "")
    forest.commit_all()
    assert not await pays(found, forest.head)


async def test_the_readers_end_with_the_worktree(forest: RealRepository, tmp_path: Path) -> None:
    _, lazy = await pair(forest, tmp_path / "trees")
    await files_of(lazy).read("src/main.py", limit=100)
    here = os.fsencode(tmp_path / "trees" / "lazy")  # Other tests have readers of their own meanwhile.
    running = [path for path in Path("/proc").glob("[0-9]*/cmdline") if here in _bytes(path)]
    assert running
    await lazy.close(keep=False)
    assert [path for path in Path("/proc").glob("[0-9]*/cmdline") if here in _bytes(path)] == []


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
