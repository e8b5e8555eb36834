"""Whatever the user and the agent did: applying is a three-way merge of both, all or nothing, and touches nothing else.

`OUTPOST_EXAMPLES` is the number of generated histories, 15 unless it is set.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from functools import partial
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from outpost_lsp.sandbox.landing import land
from outpost_lsp.sandbox.standing import names_on_disk, present_on_disk
from outpost_lsp.worktrees.apply import plan
from outpost_lsp.worktrees.contents import versions_of
from outpost_lsp.worktrees.git import find_repository
from outpost_lsp.worktrees.snapshot import take_snapshot
from outpost_lsp.worktrees.worktree import open_worktree
from tests.support.repositories import RealRepository, make_repository

EXAMPLES = int(os.environ.get("OUTPOST_EXAMPLES", "15"))
PATHS = (
    "a.txt",
    "B.txt",
    "b.txt",
    "dir/c.txt",
    "dir/deep/d.bin",
    "dir/sp ace\t\"q'.txt",
    "line\nbreak.txt",
    "-dash.txt",
)
File = tuple[bytes, bool]
"""The content, and whether it is executable."""
Tree = dict[str, File]


def content(path: str, lines: list[int], ends: str, last: bool, binary: bool) -> bytes:
    """Lines that no other path has, so that git takes no deletion and creation together for a rename."""
    name = path.replace("\n", " ")
    text = ends.join(f"{name} has line {line}" for line in lines) + (ends if last else "")
    return text.encode() + (b"\0\xff" if binary else b"")


@st.composite
def contents(draw: st.DrawFn, path: str) -> bytes:
    lines = draw(st.lists(st.integers(0, 9), min_size=1, max_size=9))
    return content(path, lines, draw(st.sampled_from(["\n", "\n", "\r\n"])), draw(st.booleans()), path.endswith(".bin"))


@st.composite
def trees(draw: st.DrawFn) -> Tree:
    present = draw(st.lists(st.sampled_from(PATHS), min_size=2, unique=True))
    return {path: (draw(contents(path)), draw(st.booleans())) for path in present}


@st.composite
def edited(draw: st.DrawFn, tree: Tree) -> Tree:
    """The tree after somebody worked: files made, written whole, edited at a line, removed, their modes changed."""
    result = dict(tree)
    for path in draw(st.lists(st.sampled_from(PATHS), max_size=4, unique=True)):
        if path not in result:
            result[path] = (draw(contents(path)), draw(st.booleans()))
            continue
        text, executable = result[path]
        match draw(st.sampled_from(["line", "line", "line", "whole", "remove", "mode"])):
            case "line":
                lines = text.splitlines(keepends=True)
                lines.insert(draw(st.integers(0, len(lines))), f"{path!r} new {draw(st.integers(0, 3))}\n".encode())
                result[path] = (b"".join(lines), executable)
            case "whole":
                result[path] = (draw(contents(path)), executable)
            case "remove":
                del result[path]
            case _:
                result[path] = (text, not executable)
    return result


@st.composite
def histories(draw: st.DrawFn) -> tuple[Tree, Tree, Tree, Tree]:
    """What was committed, what the user had when the run began, what the user has later, and what the agent made."""
    committed = draw(trees())
    begun = draw(edited(committed))
    return committed, begun, draw(edited(begun)), draw(edited(begun))


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(history=histories())
async def test_SNAP_06_applying_is_a_three_way_merge_and_nothing_else_changes(
    tmp_path: Path, history: tuple[Tree, Tree, Tree, Tree]
) -> None:
    committed, begun, user, agent = history
    folder = Path(tempfile.mkdtemp(dir=tmp_path))
    repository = make_repository(folder / "project", {"untouched.txt": "untouched\n"})
    put(repository.path, {}, committed)
    repository.commit_all()
    put(repository.path, committed, begun)
    repository.git("add", "--", "untouched.txt")
    found = await find_repository(repository.path)
    snapshot = await take_snapshot(found)
    worktree = await open_worktree(found, snapshot.commit, folder / "trees", run_id="run")
    put(worktree.directory, begun, agent)
    versions = await versions_of(found, await worktree.freeze())
    put(repository.path, begun, user)
    before, expected = state_of_git(repository), merged(folder, begun, user, agent)

    landing = await plan(found, versions, partial(present_on_disk, found.top), partial(names_on_disk, found.top))
    assert {one.path for one in landing.conflicts} == {path for path, one in expected.items() if one == "conflict"}
    await land(found.top, landing.operations, records=folder / "landings")

    wanted = user if landing.conflicts else {path: one for path, one in expected.items() if isinstance(one, tuple)}
    assert standing(repository.path) == wanted | {"untouched.txt": (b"untouched\n", False)}
    await worktree.close(keep=False)
    assert state_of_git(repository) == before
    repository.git("fsck", "--strict", "--no-dangling")
    shutil.rmtree(folder)


def merged(folder: Path, base: Tree, user: Tree, agent: Tree) -> dict[str, File | str | None]:
    """What each path becomes: a file, `None` for none, or `conflict`; told by git's own merge of contents."""
    result: dict[str, File | str | None] = {}
    for path in {*base, *user, *agent}:
        b, u, a = base.get(path), user.get(path), agent.get(path)
        if a == b:
            result[path] = u
        elif b is None:
            result[path] = a if u is None else u if a is not None and u[0] == a[0] else "conflict"
        elif a is None:
            result[path] = None if u is None or u[0] == b[0] else "conflict"
        elif u is None:
            result[path] = "conflict"
        else:
            text = merged_text(folder, b[0], u[0], a[0])
            result[path] = "conflict" if text is None else (text, u[1] if a[1] == b[1] else a[1])
    return result


def merged_text(folder: Path, base: bytes, user: bytes, agent: bytes) -> bytes | None:
    if user in {base, agent}:
        return agent
    if agent == base:
        return user
    if b"\0" in base + user + agent:
        return None
    for name, side in (("u", user), ("b", base), ("a", agent)):
        (folder / name).write_bytes(side)
    arguments = ["git", "merge-file", "-p", "-q", *(str(folder / name) for name in "uba")]
    done = subprocess.run(arguments, capture_output=True, check=False)
    return done.stdout if done.returncode == 0 else None


def put(root: Path, before: Tree, after: Tree) -> None:
    for path in before.keys() - after.keys():
        (root / path).unlink()
    for path, (data, executable) in after.items():
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        if before.get(path) != (data, executable):
            place.write_bytes(data)
            place.chmod(0o755 if executable else 0o644)


def standing(root: Path) -> Tree:
    return {
        path.relative_to(root).as_posix(): (path.read_bytes(), bool(path.stat().st_mode & 0o100))
        for path in root.rglob("*")
        if path.is_file() and ".git" not in path.relative_to(root).parts
    }


def state_of_git(repository: RealRepository) -> dict[str, str]:
    """Every file of the user's git folder byte for byte, but for objects and registrations."""
    return {name: state for name, state in repository.state().items() if name.startswith(".git/")}
