"""The trees that snapshots are made of, compared with what `git add -A` makes of the same files."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest

from outpost_lsp.errors import OutpostError
from outpost_lsp.worktrees.git import find_repository
from outpost_lsp.worktrees.new_objects import NewObjects
from outpost_lsp.worktrees.objects import Entry, object_reader, write_tree
from outpost_lsp.worktrees.snapshot import take_snapshot
from tests.support.repositories import RealRepository, make_repository

NAMES = ["a", "b.txt", "dir", "dir.x", "dir-y", "dir/a", "dir/b/c", "dir/b/d", "z/z/z", "é.txt", "sp ace", 'q"uote\n']


def content(random_: random.Random) -> bytes:
    lines = random_.choices([b"one", b"two", b"", b"three and more"], k=random_.randrange(5))
    return random_.choice([b"\n", b"\r\n"]).join(lines) + random_.choice([b"", b"\n"])


def put(repository: RealRepository, random_: random.Random) -> None:
    """One random thing a user does to the work tree or the index."""
    name = random_.choice(NAMES)
    path = repository.path / name
    action = random_.choice(
        ["write", "write", "write", "link", "delete", "mode", "stage", "unstage", "intend", "cached"]
    )
    if action in {"write", "link"}:
        for above in [*path.relative_to(repository.path).parents][::-1][1:]:
            place = repository.path / above
            if place.is_symlink() or place.is_file():
                place.unlink()
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        if action == "link":
            path.symlink_to(random_.choice(["a", "dir", "/nowhere", "dir/b"]))
        else:
            path.write_bytes(content(random_))
    elif action == "delete" and os.path.lexists(path) and not any(p.is_symlink() for p in path.parents):
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    elif action == "mode" and path.is_file() and not path.is_symlink():
        path.chmod(path.stat().st_mode ^ 0o100)
    elif action == "stage":
        repository.git("add", "-A", random_.choice([".", "."]))
    else:
        arguments = {
            "unstage": ["reset", "-q", "--", name],
            "intend": ["add", "-N", "--", name],
            "cached": ["rm", "-q", "-r", "--cached", "--", name],
        }.get(action)
        if arguments is not None:
            try:
                repository.git(*arguments)
            except AssertionError:
                return  # Nothing of that name is there.


def by_git(repository: RealRepository, folder: Path) -> str:
    """The tree that git itself makes of the files, through a copy of the index."""
    index = folder / "index"
    shutil.copy2(repository.git_dir / "index", index)
    inner = RealRepository(repository.path)
    os.environ["OUTPOST_TEST_INDEX"] = str(index)
    script = 'export GIT_INDEX_FILE="$OUTPOST_TEST_INDEX"; git add -A && git write-tree'
    alias = ("-c", f"alias.whole=!{script}", "whole")
    return inner.git(*alias).splitlines()[-1]


@pytest.mark.parametrize("seed", range(30))
async def test_SNAP_01_a_snapshot_is_what_git_add_would_make(tmp_path: Path, seed: int) -> None:
    random_ = random.Random(seed)
    repository = make_repository(tmp_path / "repo", {"a": "a\n", "dir/a": "x\r\n", "dir/b/c": "c\n", "keep/me": "1\n"})
    if seed % 3 == 1:
        repository.git("config", "core.autocrlf", random_.choice(["true", "input"]))
    if seed % 3 == 2:
        repository.write(".gitattributes", "* text=auto\n*.txt eol=crlf\n")
        repository.write("crlf.txt", b"committed\r\nso\r\n")
    if seed % 5 == 4:
        repository.git("update-ref", "-d", "HEAD")
    for _ in range(random_.randrange(1, 25)):
        put(repository, random_)
    found = await find_repository(repository.path)
    before = repository.state()
    snapshot = await take_snapshot(found)
    index = await take_snapshot(found, view="index")
    assert repository.state() == before
    expected = by_git(repository, tmp_path)
    assert snapshot.tree == expected, repository.git("diff-tree", "-r", expected, snapshot.tree)
    assert index.tree == repository.git("write-tree")
    repository.git("fsck", "--strict")


async def test_only_the_folders_on_the_way_are_rewritten(repository: RealRepository) -> None:
    found = await find_repository(repository.path)
    blob = repository.git("hash-object", "-w", "--stdin", stdin=b"new\n")
    base = repository.git("rev-parse", "HEAD^{tree}")
    tree = await write_tree(
        found, base, {b"src/deep/er/new.py": Entry(b"100644", blob), b"a.txt": None, b"not/there": None}
    )
    assert repository.git("ls-tree", "-r", "--name-only", tree).splitlines() == ["src/deep/er/new.py", "src/main.py"]
    assert await write_tree(found, base, {b"a.txt": None, b"src/main.py": None}) == repository.git("mktree", stdin=b"")
    assert await write_tree(found, base, {}) == base


async def test_a_file_may_take_a_folders_place_and_the_other_way_round(repository: RealRepository) -> None:
    found = await find_repository(repository.path)
    blob = repository.git("hash-object", "-w", "--stdin", stdin=b"new\n")
    base = repository.git("rev-parse", "HEAD^{tree}")
    tree = await write_tree(
        found,
        base,
        {b"src": Entry(b"100644", blob), b"src/main.py": None, b"a.txt": None, b"a.txt/x": Entry(b"100755", blob)},
    )
    assert repository.git("ls-tree", "-r", tree).splitlines() == [
        f"100755 blob {blob}\ta.txt/x",
        f"100644 blob {blob}\tsrc",
    ]


async def test_objects_are_read_through_one_process_and_a_missing_one_is_named(repository: RealRepository) -> None:
    repository.write("big.bin", os.urandom(3_000_000))
    repository.commit_all()
    found = await find_repository(repository.path)
    async with object_reader(found) as reader:
        tree = await reader.tree(repository.git("rev-parse", "HEAD^{tree}"))
        assert sorted(tree) == [b"a.txt", b"big.bin", b"src"]
        assert await reader.read(tree[b"a.txt"].oid) == ("blob", b"one\ntwo\nthree\n", 14)
        kind, content_, size = await reader.read(tree[b"big.bin"].oid, limit=10)
        assert (kind, len(content_), size) == ("blob", 10, 3_000_000)
        with pytest.raises(OutpostError, match="is missing"):
            await reader.read("0" * 40)
        assert await reader.read(tree[b"a.txt"].oid) == ("blob", b"one\ntwo\nthree\n", 14)


@pytest.mark.parametrize("kind", ["sha1", "sha256"])
async def test_new_trees_and_a_commit_are_written_together_with_the_names_that_git_gives_them(
    tmp_path: Path, kind: str
) -> None:
    repository = RealRepository(tmp_path / "repo")
    repository.path.mkdir()
    repository.git("init", "-q", f"--object-format={kind}")
    found = await find_repository(repository.path)
    blob = repository.git("hash-object", "-w", "--stdin", stdin=b"x\n")
    new = NewObjects()
    files = {b"many/%d.txt" % number: Entry(b"100644", blob) for number in range(400)}
    tree = await write_tree(found, "", {**files, b"a.txt": Entry(b"100755", blob)}, new=new)
    commit = new.add_commit(tree, "", "Of both kinds")
    assert repository.git("count-objects").split()[0] == "1"  # Nothing but the blob is there yet.
    await new.write(found)
    await new.write(found)
    assert repository.git("log", "-1", "--format=%T%n%P%n%an <%ae>%n%s", commit).splitlines() == [
        tree,
        "",
        "Outpost <outpost@localhost>",
        "Of both kinds",
    ]
    assert len(repository.git("ls-tree", "-r", "--name-only", tree).splitlines()) == 401
    repository.git("fsck", "--strict", "--no-dangling")
