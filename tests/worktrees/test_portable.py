"""Commits that travel as packs (SO-08), and results that lie (SO-09)."""

from __future__ import annotations

import pickle
import zlib
from pathlib import Path

import pytest

from outpost_lsp.errors import OutpostError
from outpost_lsp.worktrees.git import Repository, find_repository, run_git
from outpost_lsp.worktrees.portable import accept_result, has_commit, open_store, pack_base, pack_delta, store_pack
from outpost_lsp.worktrees.snapshot import Snapshot, take_snapshot
from tests.support.repositories import RealRepository, make_repository


@pytest.fixture(params=["sha1", "sha256"])
def project(request: pytest.FixtureRequest, tmp_path: Path) -> RealRepository:
    repository = make_repository(tmp_path / "project", object_format=request.param)
    for number in range(40):
        repository.write(f"src/part{number}.txt", "".join(f"line {number} {line}\n" for line in range(200)))
    repository.commit_all("first")
    repository.write("src/part0.txt", "a history that stays at home\n")
    repository.commit_all("second")
    return repository


async def shipped(project: RealRepository, tmp_path: Path) -> tuple[Repository, Repository, Snapshot]:
    """A repository with unsaved and untracked work, and a worker's store that got its snapshot."""
    project.write("src/part1.txt", "edited\n")
    project.write("new file.txt", "untracked\n")
    project.write(".gitignore", "secret\n")
    project.write("secret", "ignored\n")
    repository = await find_repository(project.path)
    snapshot = await take_snapshot(repository, view="working", unsaved={"src/part2.txt": "unsaved\n"})
    base = tmp_path / "base.pack"
    await pack_base(repository, snapshot.parent, base)
    store = await open_store(tmp_path / "store", sha256=len(snapshot.commit) == 64)
    await store_pack(store, base, [snapshot.parent])
    await store_pack(store, await pack_delta(repository, snapshot.parent, [snapshot.commit]), [snapshot.commit])
    return repository, store, snapshot


async def made(
    store: Repository, snapshot: Snapshot, changes: dict[str, str], *parents: str, mode: str = "100644"
) -> str:
    """A commit that a worker's agent made."""
    lines = []
    for path, text in changes.items():
        blob = await run_git(store, ["hash-object", "-w", "--stdin"], stdin=text.encode(), check=True)
        lines.append(f"{mode} {blob.stdout.decode().strip()}\t{path}")
    index = store.top / "index"
    await run_git(store, ["read-tree", snapshot.tree], index=index, check=True)
    arguments = ["update-index", "--add", "--index-info"]
    await run_git(store, arguments, index=index, stdin=("\n".join(lines) + "\n").encode(), check=True)
    tree = (await run_git(store, ["write-tree"], index=index, check=True)).stdout.decode().strip()
    return await committed(store, tree, *(parents or (snapshot.commit,)))


async def committed(store: Repository, tree: str, *parents: str) -> str:
    text = f"tree {tree}\n" + "".join(f"parent {parent}\n" for parent in parents)
    text += "author A <a@example.invalid> 0 +0000\ncommitter A <a@example.invalid> 0 +0000\n\nresult\n"
    arguments = ["hash-object", "-t", "commit", "-w", "--stdin"]
    return (await run_git(store, arguments, stdin=text.encode(), check=True)).stdout.decode().strip()


async def test_SO_08_a_base_and_a_thin_delta_bring_the_snapshot_as_the_user_sees_it(
    project: RealRepository, tmp_path: Path
) -> None:
    repository, store, snapshot = await shipped(project, tmp_path)
    worker = RealRepository(store.git_dir)
    assert worker.tree(snapshot.commit) == project.tree(snapshot.commit)
    files = worker.tree(snapshot.commit)
    assert files["src/part2.txt"] == b"unsaved\n"
    assert files["new file.txt"] == b"untracked\n"
    assert "secret" not in files
    assert await has_commit(store, snapshot.commit)
    assert not await has_commit(store, project.git("rev-parse", "HEAD~1"))
    assert worker.git("rev-list", "--count", snapshot.commit) == "2"
    worker.git("fsck", "--strict", "--connectivity-only", snapshot.commit)
    edited = sum(len(text) for text in (b"edited\n", b"untracked\n", b"unsaved\n", b"secret\n"))
    delta = await pack_delta(repository, snapshot.parent, [snapshot.commit])
    assert len(delta) < 3 * len(project.run("cat-file", "tree", snapshot.tree)) + edited + 1_000


async def test_SO_08_asking_and_answering_change_nothing_of_the_users(project: RealRepository, tmp_path: Path) -> None:
    project.write("src/part1.txt", "edited\n")
    before = project.state()
    await shipped(project, tmp_path)
    after = project.state()
    for path in ("src/part1.txt", "new file.txt", ".gitignore", "secret"):
        before.pop(path, None)
        after.pop(path, None)
    assert before == after


async def test_SO_08_an_unborn_branch_is_sent_as_a_base_of_its_own(tmp_path: Path) -> None:
    project = make_repository(tmp_path / "project", commit=False)
    project.write("a.txt", "first\n")
    repository = await find_repository(project.path)
    snapshot = await take_snapshot(repository, view="working")
    base = tmp_path / "base.pack"
    await pack_base(repository, snapshot.commit, base)
    store = await open_store(tmp_path / "store")
    await store_pack(store, base, [snapshot.commit])
    assert RealRepository(store.git_dir).tree(snapshot.commit) == {"a.txt": b"first\n"}


async def test_a_result_comes_back_as_a_patch_to_the_workers_tree(project: RealRepository, tmp_path: Path) -> None:
    repository, store, snapshot = await shipped(project, tmp_path)
    result = await made(store, snapshot, {"src/part3.txt": "fixed\n", "docs/new.md": "text\n"})
    before = project.state()
    delivered = await accept_result(repository, await pack_delta(store, snapshot.commit, [result]), snapshot.commit)
    assert delivered.paths == ("docs/new.md", "src/part3.txt")
    assert delivered.tree == RealRepository(store.git_dir).git("rev-parse", f"{result}^{{tree}}")
    assert project.state() == before
    assert (await run_git(repository, ["cat-file", "-e", result])).status != 0
    copy = RealRepository(tmp_path / "copy")
    project.git("worktree", "add", "-q", "--detach", str(copy.path), snapshot.commit)
    copy.git("apply", "--index", "-", stdin=delivered.patch)
    assert copy.git("write-tree") == delivered.tree


@pytest.mark.parametrize(
    ("path", "mode"),
    [("../outside", "100644"), (".git/hooks/post-checkout", "100755"), ("a/.GIT/config", "100644"), ("x", "160000")],
)
async def test_SO_09_a_path_or_mode_that_no_agent_may_write_is_refused(path: str, mode: str, tmp_path: Path) -> None:
    project = make_repository(tmp_path / "project")
    repository, store, snapshot = await shipped_small(project, tmp_path)
    blob = await run_git(store, ["hash-object", "-w", "--stdin"], stdin=b"#!/bin/sh\n", check=True)
    oid = snapshot.commit if mode == "160000" else blob.stdout.decode().strip()
    tree = await nested_tree(store, path.split("/"), mode, oid)
    result = await committed(store, tree, snapshot.commit)
    pack = await whole_pack(store, result, tree)
    before = project.state()
    with pytest.raises(OutpostError) as caught:
        await accept_result(repository, pack, snapshot.commit)
    assert caught.value.code == "workspace"
    assert project.state() == before
    assert not (tmp_path / "outside").exists()


async def shipped_small(project: RealRepository, tmp_path: Path) -> tuple[Repository, Repository, Snapshot]:
    repository = await find_repository(project.path)
    snapshot = await take_snapshot(repository, view="working")
    store = await open_store(tmp_path / "store")
    base = tmp_path / "base.pack"
    await pack_base(repository, snapshot.commit, base)
    await store_pack(store, base, [snapshot.commit])
    return repository, store, snapshot


async def nested_tree(store: Repository, parts: list[str], mode: str, oid: str) -> str:
    """Trees as no git makes them, written byte by byte."""
    for part in reversed(parts):
        data = f"{mode} {part}".encode() + b"\0" + bytes.fromhex(oid)
        arguments = ["hash-object", "-t", "tree", "-w", "--literally", "--stdin"]
        oid = (await run_git(store, arguments, stdin=data, check=True)).stdout.decode().strip()
        mode = "40000"
    return oid


async def whole_pack(store: Repository, *objects: str) -> bytes:
    listed = list(objects)
    for oid in objects:
        pending = [oid]
        while pending:
            shown = await run_git(store, ["ls-tree", "-t", "-r", pending.pop()])
            for line in shown.stdout.decode().splitlines():
                kind, name = line.split()[1:3]
                if kind != "commit":
                    listed.append(name)
    arguments = ["pack-objects", "--quiet", "--stdout"]
    data = ("\n".join(dict.fromkeys(listed)) + "\n").encode()
    return (await run_git(store, arguments, stdin=data, check=True)).stdout


@pytest.mark.parametrize("case", ["another parent", "no parent", "two commits", "no commit", "two parents"])
async def test_SO_09_only_one_commit_on_the_snapshot_is_accepted(case: str, tmp_path: Path) -> None:
    project = make_repository(tmp_path / "project")
    repository, store, snapshot = await shipped_small(project, tmp_path)
    good = await made(store, snapshot, {"fixed.txt": "fixed\n"})
    tree = RealRepository(store.git_dir).git("rev-parse", f"{good}^{{tree}}")
    foreign = await committed(store, snapshot.tree)
    commits = {
        "another parent": [foreign, await committed(store, tree, foreign)],
        "no parent": [await committed(store, tree)],
        "two commits": [good, await committed(store, snapshot.tree, snapshot.commit)],
        "no commit": [],
        "two parents": [await committed(store, tree, snapshot.commit, snapshot.commit)],
    }[case]
    pack = await whole_pack(store, *commits, tree)
    with pytest.raises(OutpostError, match=r"refused|broken"):
        await accept_result(repository, pack, snapshot.commit)


@pytest.mark.parametrize(
    "pack",
    [
        b"",
        b"PACK",
        pickle.dumps({"result": "code"}),
        b"PACK\0\0\0\2\0\0\0\1" + zlib.compress(b"x" * 1000),
        b"PACK\0\0\0\2\xff\xff\xff\xff" + b"\0" * 64,
    ],
    ids=["nothing", "cut", "pickle", "torn", "endless"],
)
async def test_SO_09_bytes_that_are_no_pack_are_one_fault(pack: bytes, tmp_path: Path) -> None:
    project = make_repository(tmp_path / "project")
    repository, _store, snapshot = await shipped_small(project, tmp_path)
    before = project.state()
    with pytest.raises(OutpostError) as caught:
        await accept_result(repository, pack, snapshot.commit)
    assert caught.value.code == "workspace"
    assert project.state() == before


async def test_a_broken_pack_leaves_the_store_as_it_was(tmp_path: Path) -> None:
    project = make_repository(tmp_path / "project")
    _repository, store, snapshot = await shipped_small(project, tmp_path)
    with pytest.raises(OutpostError, match="broken"):
        await store_pack(store, b"PACKnonsense", ["0" * 40])
    with pytest.raises(OutpostError, match="lacks the commit"):
        await store_pack(store, b"", ["1" * 40])
    with pytest.raises(OutpostError, match="no commit"):
        await store_pack(store, b"", ["--upload-pack=x"])
    assert await has_commit(store, snapshot.commit)
    assert not await has_commit(store, "1" * 40)
    RealRepository(store.git_dir).git("fsck", "--strict")
