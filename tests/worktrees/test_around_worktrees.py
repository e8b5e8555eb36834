"""What stands around a worktree: copies, submodules, plain folders, bundles, witnesses, identities."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from outpost_lsp.errors import OutpostError
from outpost_lsp.sandbox.landing import land
from outpost_lsp.sandbox.standing import names_on_disk, present_on_disk
from outpost_lsp.worktrees import witness
from outpost_lsp.worktrees.apply import plan
from outpost_lsp.worktrees.bundle import load_bundle, save_bundle
from outpost_lsp.worktrees.changes import change_set, file_at
from outpost_lsp.worktrees.contents import versions_of
from outpost_lsp.worktrees.copies import CopiedFile, copy_ignored
from outpost_lsp.worktrees.git import find_repository
from outpost_lsp.worktrees.identity import commit_identity
from outpost_lsp.worktrees.plain_folder import open_plain_folder, reap_plain_folders
from outpost_lsp.worktrees.registration import Owner
from outpost_lsp.worktrees.snapshot import take_snapshot
from outpost_lsp.worktrees.witness import differences, take_witness, taken_over
from outpost_lsp.worktrees.worktree import Worktree, open_worktree
from tests.support.repositories import RealRepository, make_repository

OPEN = Path.open


async def opened(repository: RealRepository, folder: Path) -> Worktree:
    found = await find_repository(repository.path)
    snapshot = await take_snapshot(found)
    return await open_worktree(found, snapshot.commit, folder, run_id="run")


# --- copies


@pytest.fixture
def with_ignored(repository: RealRepository, tmp_path: Path) -> RealRepository:
    repository.write(".gitignore", "*.env\nbuild/\nlinked\nlink.env\n")
    repository.write(".worktreeinclude", "# what runs need\n\nlocal.env\n../outside\n")
    repository.commit_all()
    repository.write("secret.env", "KEY=1\n")
    repository.write("local.env", "PORT=1\n", mode=0o640)
    repository.write("sub/deep.env", "X=1\n")
    repository.write("build/out.o", "object")
    (repository.path / "link.env").symlink_to("/etc/passwd")
    (repository.path / "linked").symlink_to(tmp_path)
    (tmp_path / "outside").write_text("outside\n")
    return repository


async def test_SEC_11_nothing_ignored_comes_along_by_itself(with_ignored: RealRepository, tmp_path: Path) -> None:
    worktree = await opened(with_ignored, tmp_path / "trees")
    copies = await copy_ignored(worktree.origin, worktree.directory, [], with_include_file=False)
    assert copies.files == ()
    assert not (worktree.directory / "local.env").exists()


async def test_SNAP_04_only_named_files_are_copied_and_listed_with_hashes(
    with_ignored: RealRepository, tmp_path: Path
) -> None:
    worktree = await opened(with_ignored, tmp_path / "trees")
    copies = await copy_ignored(worktree.origin, worktree.directory, ["/sub/*.env"], with_include_file=True)
    assert copies.files == (
        CopiedFile("local.env", hashlib.sha256(b"PORT=1\n").hexdigest()),
        CopiedFile("sub/deep.env", hashlib.sha256(b"X=1\n").hexdigest()),
    )
    assert copies.left_behind == 4
    assert (worktree.directory / "local.env").read_text() == "PORT=1\n"
    assert (worktree.directory / "local.env").stat().st_mode & 0o777 == 0o640
    assert not (worktree.directory / "secret.env").exists()
    assert (await worktree.changes()).is_empty


async def test_COPY_03_links_are_copied_as_links_and_nothing_goes_through_one(
    with_ignored: RealRepository, tmp_path: Path
) -> None:
    worktree = await opened(with_ignored, tmp_path / "trees")
    inside = worktree.directory
    (inside / "sub").symlink_to(tmp_path)
    copies = await copy_ignored(worktree.origin, inside, ["*.env", "build/"], with_include_file=False)
    assert (inside / "link.env").readlink() == Path("/etc/passwd")
    assert (inside / "build" / "out.o").read_text() == "object"
    assert "sub/deep.env" not in [file.path for file in copies.files]
    assert "sub/deep.env" in copies.notes[0]
    assert not (tmp_path / "deep.env").exists()


@pytest.mark.parametrize("pattern", ["", " ", "../x", ".git/config", "x/.GIT/y", "a/../b"])
async def test_COPY_01_a_pattern_that_leaves_is_refused(
    with_ignored: RealRepository, tmp_path: Path, pattern: str
) -> None:
    found = await find_repository(with_ignored.path)
    with pytest.raises(OutpostError, match="copy_ignored") as caught:
        await copy_ignored(found, tmp_path, [pattern], with_include_file=False)
    assert caught.value.code == "configuration"


async def test_COPY_04_one_deadline_covers_all(with_ignored: RealRepository, tmp_path: Path) -> None:
    found = await find_repository(with_ignored.path)
    with pytest.raises(OutpostError) as caught:
        await copy_ignored(found, tmp_path / "to", ["*"], with_include_file=False, deadline_s=0.000_001)
    assert caught.value.code == "timeout"


# --- submodules


async def test_SNAP_08_submodules_are_laid_out_from_the_store_without_network(tmp_path: Path) -> None:
    innermost = make_repository(tmp_path / "innermost", {"deep.txt": "deep\n"})
    inner = make_repository(tmp_path / "inner", {"inner.txt": "inner\n"})
    outer = make_repository(tmp_path / "outer", {"x": "x"})
    allow = ("-c", "protocol.file.allow=always")
    inner.git(*allow, "submodule", "add", "-q", str(innermost.path), "nested")
    inner.commit_all()
    outer.git(*allow, "submodule", "add", "-q", "--name", "odd name", str(inner.path), "libs/in ner")
    outer.git(*allow, "submodule", "add", "-q", str(innermost.path), "lost")
    outer.git(*allow, "submodule", "update", "-q", "--init", "--recursive")
    outer.commit_all()
    subprocess.run(["rm", "-rf", str(outer.git_dir / "modules" / "lost")], check=True)
    before = outer.state()
    worktree = await opened(outer, tmp_path / "trees")
    inside = worktree.directory
    assert (inside / "libs/in ner/inner.txt").read_text() == "inner\n"
    assert (inside / "libs/in ner/nested/deep.txt").read_text() == "deep\n"
    assert list((inside / "lost").iterdir()) == []
    assert worktree.notes == (
        "Submodules are there to read; changes in them are not part of the result: libs/in ner, libs/in ner/nested.",
        "Submodules that are not stored here are empty folders: lost.",
    )
    (inside / "libs/in ner/inner.txt").write_text("agent\n")
    assert (await worktree.changes()).is_empty
    await worktree.close(keep=False)
    state = outer.state()
    assert {name for name in state if state[name] != before.get(name)} == set()


async def test_a_hostile_declaration_of_submodules_leads_nowhere(repository: RealRepository, tmp_path: Path) -> None:
    elsewhere = make_repository(tmp_path / "elsewhere", {"keep.txt": "keep\n"})
    before = elsewhere.state()
    oid = elsewhere.head
    repository.git("update-index", "--add", "--cacheinfo", f"160000,{oid},evil")
    repository.git("commit", "-q", "-m", "gitlink")
    (repository.path / "evil").mkdir()
    for text in (
        '[submodule "../../../elsewhere/.git"]\n\tpath = evil\n\turl = x\n',
        f'[submodule "{elsewhere.path}/.git"]\n\tpath = evil\n\turl = x\n',
        '[submodule "x"]\n\tpath = ../evil\n',
        "[include]\n\tpath = /etc/passwd\n[submodule\n",
        "\0\xff",
    ):
        repository.write(".gitmodules", text)
        found = await find_repository(repository.path)
        snapshot = await take_snapshot(found, untracked=True)
        worktree = await open_worktree(found, snapshot.commit, tmp_path / "trees", run_id="run")
        assert list((worktree.directory / "evil").iterdir()) == []
        await worktree.close(keep=False)
    assert elsewhere.state() == before


# --- plain folders


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    folder = tmp_path / "plain"
    (folder / "sub").mkdir(parents=True)
    (folder / "a.txt").write_text("one\n")
    (folder / "sub" / "b.txt").write_text("two\n")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "link").symlink_to("/etc/passwd")
    (folder / ".gitignore").write_text("*.log\n")
    (folder / "x.log").write_text("noise")
    os.mkfifo(folder / "pipe")
    return folder


def listing(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): f"{path.lstat().st_mode} {path.lstat().st_mtime_ns}"
        for path in folder.rglob("*")
    }


async def test_SNAP_09_a_plain_folder_is_worked_on_in_a_copy_and_applied_to(plain: Path, tmp_path: Path) -> None:
    before = listing(plain)
    worktree, snapshot = await open_plain_folder(
        plain, tmp_path / "trees", run_id="run", unsaved={"a.txt": "unsaved\n"}
    )
    assert (snapshot.head, snapshot.parent) == ("", "")
    inside = worktree.directory
    assert sorted(path.name for path in inside.iterdir()) == [".gitignore", "a.txt", "link", "run.sh", "sub", "x.log"]
    assert (inside / "a.txt").read_text() == "unsaved\n"
    assert (inside / "link").readlink() == Path("/etc/passwd")
    (inside / "sub" / "b.txt").write_text("TWO\n")
    (inside / "new.txt").write_text("new\n")
    changes = await worktree.freeze()
    assert [(file.path, file.status) for file in changes.files] == [("new.txt", "added"), ("sub/b.txt", "modified")]
    assert listing(plain) == before
    versions = await versions_of(worktree.repository, changes)
    landing = await plan(worktree.repository, versions, partial(present_on_disk, plain), partial(names_on_disk, plain))
    await land(plain, landing.operations, records=tmp_path / "landings")
    assert (plain / "sub" / "b.txt").read_text() == "TWO\n"
    assert (plain / "new.txt").read_text() == "new\n"
    assert not (plain / ".git").exists()
    await worktree.close(keep=False)
    assert not inside.exists()
    assert [path for path in (tmp_path / "trees" / ".plain").iterdir() if path.name != ".trash"] == []


async def test_SNAP_09_a_plain_folder_that_is_too_large_is_refused_and_nothing_stays(tmp_path: Path) -> None:
    folder = tmp_path / "many"
    folder.mkdir()
    for number in range(5_001):
        (folder / f"{number}").touch()
    with pytest.raises(OutpostError, match="too large to copy") as caught:
        await open_plain_folder(folder, tmp_path / "trees", run_id="run")
    assert caught.value.code == "workspace"
    large = tmp_path / "large"
    large.mkdir()
    with (large / "sparse").open("wb") as file:
        file.truncate(51 * 1024 * 1024)
    with pytest.raises(OutpostError, match="50 MiB"):
        await open_plain_folder(large, tmp_path / "trees", run_id="run")
    assert [path.name for path in (tmp_path / "trees").iterdir()] == [".trash"]


async def test_copies_of_plain_folders_are_reaped_like_worktrees(plain: Path, tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    for run_id in ("empty", "changed", "alive"):
        worktree, _ = await open_plain_folder(plain, tmp_path / "trees", run_id=run_id)
        if run_id != "alive":
            (worktree.repository.git_dir / "locked").write_text(Owner(run_id, worktree.commit, ended.pid, "1").reason)
        if run_id == "changed":
            (worktree.directory / "new.txt").write_text("work\n")
    results = {each.run_id: each.state for each in await reap_plain_folders(tmp_path / "trees")}
    assert results == {"empty": "removed", "changed": "kept"}
    assert not (tmp_path / "trees" / "empty").exists()
    assert (tmp_path / "trees" / "changed" / "new.txt").read_text() == "work\n"


# --- bundles


async def test_SEC_06_a_result_outlives_its_worktree_in_a_bundle_without_any_ref(
    repository: RealRepository, tmp_path: Path
) -> None:
    repository.write("a.txt", "dirty\n")
    before = repository.state()
    worktree = await opened(repository, tmp_path / "trees")
    (worktree.directory / "a.txt").write_text("agent\n")
    changes = await worktree.freeze()
    file = tmp_path / "state" / "run.bundle"
    await save_bundle(worktree.repository, changes, file)
    assert file.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in file.parent.iterdir()] == ["run.bundle"]
    await worktree.close(keep=False)
    repository.git("prune", "--expire=now")
    with pytest.raises(OutpostError):
        await file_at(worktree.origin, changes.commit, "a.txt", 100)
    assert await load_bundle(worktree.origin, file) == changes.commit
    again = await open_worktree(worktree.origin, changes.base, tmp_path / "trees", run_id="again")
    assert (again.directory / "a.txt").read_text() == "dirty\n"
    assert await file_at(worktree.origin, changes.commit, "a.txt", 100) == b"agent\n"
    await again.close(keep=False)
    assert repository.state() == before


async def test_a_bundle_of_an_unborn_repository_stands_alone(tmp_path: Path) -> None:
    unborn = make_repository(tmp_path / "unborn", {"a.txt": "a\n"}, commit=False)
    worktree = await opened(unborn, tmp_path / "trees")
    (worktree.directory / "a.txt").write_text("agent\n")
    changes = await worktree.freeze()
    await save_bundle(worktree.repository, changes, tmp_path / "run.bundle")
    await worktree.close(keep=False)
    fresh = make_repository(tmp_path / "fresh", {"z": "z"})
    found = await find_repository(fresh.path)
    assert await load_bundle(found, tmp_path / "run.bundle") == changes.commit


async def test_a_bundle_whose_ground_is_gone_is_said_in_one_sentence(
    repository: RealRepository, tmp_path: Path
) -> None:
    worktree = await opened(repository, tmp_path / "trees")
    (worktree.directory / "a.txt").write_text("agent\n")
    await save_bundle(worktree.repository, await worktree.freeze(), tmp_path / "run.bundle")
    other = make_repository(tmp_path / "other", {"z": "z"})
    with pytest.raises(OutpostError, match="is no longer in"):
        await load_bundle(await find_repository(other.path), tmp_path / "run.bundle")
    (tmp_path / "broken.bundle").write_text("nonsense")
    with pytest.raises(OutpostError, match="git bundle failed"):
        await load_bundle(worktree.origin, tmp_path / "broken.bundle")


# --- witnesses and identities


async def test_a_witness_names_what_differs(repository: RealRepository, tmp_path: Path) -> None:
    found = await find_repository(repository.path)
    before = await take_witness(found)
    worktree = await opened(repository, tmp_path / "trees")
    await worktree.close(keep=False)
    assert differences(before, await take_witness(found)) == ()
    repository.write(".git/hooks/pre-commit", "#!/bin/sh\n")
    repository.git("config", "x.y", "z")
    repository.git("branch", "new")
    repository.write("a.txt", "x")
    repository.git("stash", "-q")
    assert differences(before, await take_witness(found)) == ("index", "config", "refs", "hooks", "stash reflog")


async def test_an_index_is_read_again_when_anything_of_it_changed_however_it_is_dated(
    repository: RealRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(witness, "_SETTLED_NS", -(1 << 62))
    index = repository.git_dir / "index"
    found = await find_repository(repository.path)
    before = await take_witness(found)
    monkeypatch.setattr(
        Path, "open", lambda path, *_: pytest.fail(f"{path} is read") if path == index else OPEN(path, "rb")
    )
    assert differences(before, await take_witness(found)) == ()
    monkeypatch.undo()
    was, data = index.stat(), index.read_bytes()
    while index.stat().st_ctime_ns == was.st_ctime_ns:
        index.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        os.utime(index, ns=(was.st_atime_ns, was.st_mtime_ns))
    now = index.stat()
    assert (now.st_ino, now.st_size, now.st_mtime_ns) == (was.st_ino, was.st_size, was.st_mtime_ns)
    assert differences(before, await take_witness(found)) == ("index",)
    index.unlink()
    assert differences(before, await take_witness(found)) == ("index",)


async def test_a_file_of_the_checkout_that_became_the_agents_is_named(
    repository: RealRepository, tmp_path: Path
) -> None:
    worktree = await opened(repository, tmp_path / "trees")
    (worktree.directory / "a.txt").write_text("agent\n")
    (worktree.directory / "new.txt").write_text("agent\n")
    (worktree.directory / "src" / "main.py").write_text("agent\n")
    versions = await versions_of(worktree.origin, await change_set(worktree.repository, worktree.commit))
    assert await taken_over(worktree.origin, versions) == ()
    repository.write("a.txt", "the user's\n")
    repository.write("new.txt", "agent\n")
    assert await taken_over(worktree.origin, versions) == ("new.txt",)


async def test_GIT_03_commits_are_by_the_user_or_by_the_product(repository: RealRepository, private_home: Path) -> None:
    found = await find_repository(repository.path)
    assert commit_identity(found)["GIT_AUTHOR_NAME"] == "Outpost"
    assert commit_identity(found)["GIT_COMMITTER_EMAIL"] == "outpost@localhost"
    (private_home / ".gitconfig").write_text("[user]\n\tname = Ada Example\n\temail = ada@example.invalid\n")
    found = await find_repository(repository.path)
    assert commit_identity(found) == {
        "GIT_AUTHOR_NAME": "Ada Example",
        "GIT_AUTHOR_EMAIL": "ada@example.invalid",
        "GIT_COMMITTER_NAME": "Ada Example",
        "GIT_COMMITTER_EMAIL": "ada@example.invalid",
    }
