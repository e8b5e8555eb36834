from __future__ import annotations

import difflib
import shutil
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from outpost_lsp.domain.landing import Landing, Present, needs_own_accept
from outpost_lsp.errors import OutpostError
from outpost_lsp.sandbox.landing import land
from outpost_lsp.sandbox.standing import names_on_disk, present_on_disk
from outpost_lsp.worktrees.apply import choose, merge_contents, plan
from outpost_lsp.worktrees.changes import ChangedFile
from outpost_lsp.worktrees.contents import FileVersions, Hunk, versions_of, with_hunks
from outpost_lsp.worktrees.git import Repository, find_repository
from outpost_lsp.worktrees.snapshot import take_snapshot
from outpost_lsp.worktrees.worktree import Worktree, open_worktree
from tests.support.repositories import Case, RealRepository, make_repository


async def agent_on(repository: RealRepository, folder: Path) -> tuple[Repository, Worktree]:
    found = await find_repository(repository.path)
    snapshot = await take_snapshot(found)
    return found, await open_worktree(found, snapshot.commit, folder, run_id="run")


async def result_of(found: Repository, worktree: Worktree) -> tuple[FileVersions, ...]:
    return await versions_of(found, await worktree.freeze())


async def apply_on_disk(found: Repository, versions: tuple[FileVersions, ...]) -> Landing:
    landing = await plan(found, versions, partial(present_on_disk, found.top), partial(names_on_disk, found.top))
    await land(found.top, landing.operations, records=found.top.parent / "landings")
    return landing


def files_of(repository: RealRepository) -> dict[str, bytes]:
    return {
        path.relative_to(repository.path).as_posix(): path.read_bytes()
        for path in sorted(repository.path.rglob("*"))
        if ".git" not in path.parts and path.is_file()
    }


def tree_of(root: Path) -> dict[str, bytes | str]:
    """Every file, link and empty folder but git's."""
    found: dict[str, bytes | str] = {}
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if path.is_symlink():
            found[name] = f"-> {path.readlink()}"
        elif path.is_file():
            found[name] = path.read_bytes()
        elif not any(path.iterdir()):
            found[name] = "empty"
    return {name: what for name, what in found.items() if not name.startswith(".git/")}


TURNED = {"to folder": ("name", "name/deep/inside.txt"), "to file": ("name/deep/inside.txt", "name")}
"""What the user has, and what the agent makes of it."""


@pytest.mark.parametrize("same", [True, False], ids=["a move", "another text"])
@pytest.mark.parametrize("turn", TURNED)
async def test_SEC_23_a_file_that_becomes_a_folder_or_the_other_way_round_is_applied_in_one(
    repository: RealRepository, tmp_path: Path, turn: str, same: bool
) -> None:
    old, new = TURNED[turn]
    repository.write(old, "the text of a file\nwith a few lines\nthat make a move\n")
    (repository.path / old).chmod(0o755)
    repository.commit_all()
    found, worktree = await agent_on(repository, tmp_path / "trees")
    text = (worktree.directory / old).read_text() if same else "new\n"
    remake(worktree.directory, old, new, text)
    (worktree.directory / "other.txt").write_text("new\n")
    expected = tree_of(worktree.directory)
    expected.pop(".git", None)
    before = repository.state()
    versions = await result_of(found, worktree)
    landing = await apply_on_disk(found, versions)
    assert landing.conflicts == ()
    assert tree_of(repository.path) == expected
    assert bool((repository.path / new).stat().st_mode & 0o100) == bool(
        (worktree.directory / new).stat().st_mode & 0o100
    )
    again = await apply_on_disk(found, versions)
    assert (again.operations, again.conflicts) == ((), ())
    await worktree.close(keep=False)
    git = {name: state for name, state in before.items() if name.startswith(".git/")}
    assert {name: state for name, state in repository.state().items() if name.startswith(".git/")} == git


def remake(root: Path, old: str, new: str, text: str) -> None:
    shutil.rmtree(root / "name") if "/" in old else (root / old).unlink()
    (root / new).parent.mkdir(parents=True, exist_ok=True)
    (root / new).write_text(text)


IN_THE_WAY = {
    "edited": ("to folder", lambda top: (top / "name").write_text("the user's\n"), "changed meanwhile"),
    "a link": ("to folder", lambda top: ((top / "name").unlink(), (top / "name").symlink_to("kept.txt")), "a link"),
    "edited inside": (
        "to file", lambda top: (top / "name/deep/inside.txt").write_text("the user's\n"), "changed meanwhile",
    ),
    "new inside": (
        "to file", lambda top: (top / "name/mine.txt").write_text("the user's\n"), "does not remove name/mine.txt",
    ),
    "ignored inside": (
        "to file", lambda top: (top / "name/x.log").write_text("ignored\n"), "does not remove name/x.log",
    ),
    "an empty folder inside": ("to file", lambda top: (top / "name/mine").mkdir(), "does not remove name/mine"),
    "a repository inside": (
        "to file", lambda top: make_repository(top / "name" / "own", {"a": "a\n"}), "does not remove name/own/",
    ),
    "emptied": ("to file", lambda top: (top / "name/deep/inside.txt").unlink(), "does not remove name/deep"),
}  # fmt: skip


@pytest.mark.parametrize("case_name", IN_THE_WAY)
async def test_SEC_23_what_the_user_put_in_the_way_of_such_a_turn_is_a_conflict_that_changes_nothing(
    repository: RealRepository, tmp_path: Path, case_name: str
) -> None:
    turn, work, reason = IN_THE_WAY[case_name]
    old, new = TURNED[turn]
    repository.write(".gitignore", "*.log\n")
    repository.write("kept.txt", "kept\n")
    repository.write(old, "a file\n")
    repository.commit_all()
    found, worktree = await agent_on(repository, tmp_path / "trees")
    remake(worktree.directory, old, new, "new\n")
    (worktree.directory / "kept.txt").write_text("edited\n")
    versions = await result_of(found, worktree)
    work(repository.path)
    before = tree_of(repository.path)
    landing = await apply_on_disk(found, versions)
    assert any(reason in each.reason for each in landing.conflicts), landing.conflicts
    assert landing.operations == ()
    assert tree_of(repository.path) == before


@pytest.mark.parametrize("turn", TURNED)
async def test_SEC_23_one_half_of_such_a_turn_alone_says_what_has_to_go_with_it(
    repository: RealRepository, tmp_path: Path, turn: str
) -> None:
    old, new = TURNED[turn]
    repository.write(old, "a file\n")
    repository.commit_all()
    found, worktree = await agent_on(repository, tmp_path / "trees")
    remake(worktree.directory, old, new, "new\n")
    versions = await result_of(found, worktree)
    before = tree_of(repository.path)
    half = await apply_on_disk(found, choose(versions, paths=[new]).versions)
    assert [(each.path, each.reason.endswith("apply both together.")) for each in half.conflicts] == [(new, True)]
    assert tree_of(repository.path) == before
    await apply_on_disk(found, choose(versions, paths=[old]).versions)
    assert not (repository.path / old).exists()


async def test_SEC_23_a_folder_that_becomes_a_link_is_applied_in_one_and_is_then_known_as_applied(
    repository: RealRepository, tmp_path: Path
) -> None:
    repository.write("name/inside.txt", "a file\n")
    repository.write("real/inside.txt", "another\n")
    repository.commit_all()
    found, worktree = await agent_on(repository, tmp_path / "trees")
    shutil.rmtree(worktree.directory / "name")
    (worktree.directory / "name").symlink_to("real")
    versions = await result_of(found, worktree)
    assert (await apply_on_disk(found, versions)).conflicts == ()
    assert (repository.path / "name").readlink() == Path("real")
    assert (repository.path / "real/inside.txt").read_text() == "another\n"
    assert (await apply_on_disk(found, versions)).already == ("name", "name/inside.txt")


async def test_SEC_23_r05_the_result_lands_on_the_users_unfinished_work(
    case: Callable[[str], Case], tmp_path: Path
) -> None:
    dirty = case("r05")
    before = dirty.state()
    found, worktree = await agent_on(dirty, tmp_path / "trees")
    inside = worktree.directory
    for edit in dirty.expected["agent_edits"]:
        path = inside / edit["path"]
        match edit["op"]:
            case "edit":
                path.write_text(path.read_text().replace(edit["old"], edit["new"]))
            case "write":
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(edit["text"])
            case "delete":
                path.unlink()
            case "read":
                assert not path.exists()
    changes = await worktree.freeze()
    assert dirty.state() == before
    assert [file.path for file in changes.files] == dirty.expected["expect"]["diff_lists"]
    versions = await versions_of(found, changes)
    plan_md = dirty.path / "plan.md"
    plan_md.write_text(plan_md.read_text().replace("step two", "step 2b"))
    landing = await apply_on_disk(found, versions)
    assert landing.conflicts == ()
    for name in ("settings.py", "todo.txt", "new/feature.txt"):
        assert (dirty.path / name).read_bytes() == dirty.fact_bytes(f"after:{name}")[0]
    merged = plan_md.read_text()
    assert "step 2b\n" in merged
    assert "step eleven\n" in merged
    assert not (dirty.path / "old.txt").exists()
    assert not (dirty.path / "doomed.txt").exists()
    script = "git rev-parse HEAD; git diff --cached; git stash list; git for-each-ref; cat .env build/out.o"
    kept = subprocess.check_output(["sh", "-c", f"({script}) | sha256sum | cut -d' ' -f1"], cwd=dirty.path, text=True)
    assert kept.strip() == dirty.facts["kept_digest"]
    again = await plan(found, versions, partial(present_on_disk, found.top), partial(names_on_disk, found.top))
    assert again.operations == ()
    assert not list(dirty.path.rglob(".outpost-*"))


async def test_SEC_23_one_conflict_among_ten_files_changes_nothing(repository: RealRepository, tmp_path: Path) -> None:
    for number in range(10):
        repository.write(f"file-{number}.txt", "one\ntwo\nthree\n")
    repository.commit_all()
    found, worktree = await agent_on(repository, tmp_path / "trees")
    for number in range(10):
        (worktree.directory / f"file-{number}.txt").write_text("one\nTWO\nthree\n")
    versions = await result_of(found, worktree)
    repository.write("file-7.txt", "one\n2\nthree\n")
    before = repository.state()
    landing = await apply_on_disk(found, versions)
    assert landing.operations == ()
    assert [conflict.path for conflict in landing.conflicts] == ["file-7.txt"]
    assert "do not fit together" in landing.conflicts[0].reason
    assert repository.state() == before


async def test_every_way_the_user_can_have_gone_on_is_a_named_conflict_or_no_change(
    repository: RealRepository, tmp_path: Path
) -> None:
    for name in ("edited", "removed", "linked", "folder", "gone", "goneedited", "moved", "movedgone"):
        repository.write(f"{name}.txt", f"{name}\n" * 5)
    repository.commit_all()
    found, worktree = await agent_on(repository, tmp_path / "trees")
    inside = RealRepository(worktree.directory)
    for name in ("edited", "removed", "linked", "folder"):
        inside.write(f"{name}.txt", f"{name}\n" * 4 + "agent\n")
    for name in ("gone", "goneedited"):
        (inside.path / f"{name}.txt").unlink()
    inside.git("mv", "moved.txt", "to.txt")
    inside.git("mv", "movedgone.txt", "away.txt")
    inside.write("created.txt", "agent\n")
    inside.write("same.txt", "same\n")
    inside.write("under/link.txt", "agent\n")
    versions = {each.file.path: each for each in await result_of(found, worktree)}
    user = repository.path
    repository.write("edited.txt", "user\n" * 5)
    (user / "removed.txt").unlink()
    (user / "linked.txt").unlink()
    (user / "linked.txt").symlink_to(tmp_path / "outside")
    (tmp_path / "outside").write_text("linked\n" * 5)
    (user / "folder.txt").unlink()
    (user / "folder.txt").mkdir()
    (user / "gone.txt").unlink()
    repository.write("goneedited.txt", "user\n")
    repository.write("to.txt", "user\n")
    (user / "movedgone.txt").unlink()
    repository.write("created.txt", "user\n")
    repository.write("same.txt", "same\n")
    (tmp_path / "elsewhere").mkdir()
    (user / "under").symlink_to(tmp_path / "elsewhere")
    before = repository.state()
    reasons = {}
    for path, each in versions.items():
        landing = await apply_on_disk(found, (each,))
        reasons[path] = landing.conflicts[0].reason if landing.conflicts else landing.already
    assert reasons == {
        "away.txt": "it was removed meanwhile.",
        "created.txt": "something was put there meanwhile.",
        "edited.txt": "what was changed meanwhile and what the run changed do not fit together.",
        "folder.txt": "a folder or something that is no file stands there.",
        "gone.txt": ("gone.txt",),
        "goneedited.txt": "it was changed meanwhile, and the run removes it.",
        "linked.txt": "a link stands there, and nothing is written through it.",
        "removed.txt": "it was removed meanwhile.",
        "same.txt": ("same.txt",),
        "to.txt": "something was put there meanwhile.",
        "under/link.txt": "a folder or something that is no file stands there.",
    }
    assert repository.state() == before
    assert (tmp_path / "outside").read_text() == "linked\n" * 5
    assert list((tmp_path / "elsewhere").iterdir()) == []


async def test_a_rename_takes_the_users_edits_of_the_old_name_along(repository: RealRepository, tmp_path: Path) -> None:
    repository.write("old.txt", "".join(f"line {number}\n" for number in range(20)))
    repository.commit_all()
    found, worktree = await agent_on(repository, tmp_path / "trees")
    inside = RealRepository(worktree.directory)
    inside.git("mv", "old.txt", "new.txt")
    text = (inside.path / "new.txt").read_text()
    inside.write("new.txt", text.replace("line 18", "LINE 18"))
    versions = await result_of(found, worktree)
    repository.write("old.txt", text.replace("line 2\n", "LINE 2\n"))
    landing = await apply_on_disk(found, versions)
    assert [operation.moved_from for operation in landing.operations] == ["old.txt"]
    merged = (repository.path / "new.txt").read_text()
    assert "LINE 18\n" in merged
    assert "LINE 2\n" in merged
    assert not (repository.path / "old.txt").exists()


async def test_modes_links_and_binary_files_land(repository: RealRepository, tmp_path: Path) -> None:
    repository.write("tool.sh", "#!/bin/sh\n")
    repository.write("plain.sh", "#!/bin/sh\n", mode=0o755)
    repository.write("blob.bin", b"\0\1")
    (repository.path / "link").symlink_to("a.txt")
    repository.commit_all()
    found, worktree = await agent_on(repository, tmp_path / "trees")
    inside = worktree.directory
    (inside / "tool.sh").chmod(0o755)
    (inside / "plain.sh").chmod(0o644)
    (inside / "blob.bin").write_bytes(b"\0\1\2")
    (inside / "link").unlink()
    (inside / "link").symlink_to("src/main.py")
    (inside / "fresh.sh").write_text("#!/bin/sh\n")
    (inside / "fresh.sh").chmod(0o755)
    (inside / "fresh-link").symlink_to("a.txt")
    landing = await apply_on_disk(found, await result_of(found, worktree))
    assert landing.conflicts == ()
    modes = {name: (repository.path / name).stat().st_mode & 0o111 for name in ("tool.sh", "plain.sh", "fresh.sh")}
    assert (bool(modes["tool.sh"]), bool(modes["plain.sh"]), bool(modes["fresh.sh"])) == (True, False, True)
    assert (repository.path / "blob.bin").read_bytes() == b"\0\1\2"
    assert (repository.path / "link").readlink() == Path("src/main.py")
    assert (repository.path / "fresh-link").readlink() == Path("a.txt")


@pytest.mark.parametrize("target", ["/etc/passwd", "../outside", "src/../../x"])
async def test_a_link_that_leads_out_is_a_conflict(repository: RealRepository, tmp_path: Path, target: str) -> None:
    found, worktree = await agent_on(repository, tmp_path / "trees")
    (worktree.directory / "link").symlink_to(target)
    landing = await apply_on_disk(found, await result_of(found, worktree))
    assert "leads out of the repository" in landing.conflicts[0].reason
    assert not (repository.path / "link").is_symlink()


async def test_r07_bytes_that_the_edit_does_not_name_stay(case: Callable[[str], Case], tmp_path: Path) -> None:
    ends = case("r07")
    found, worktree = await agent_on(ends, tmp_path / "trees")
    names = ["crlf.txt", "mixed.txt", "progress.log", "bom.cs", "nofinal.txt", "run.sh"]
    for name in names:
        path = worktree.directory / name
        mode = path.stat().st_mode
        path.write_bytes(ends.fact_bytes(f"after:{name}")[0])
        path.chmod(mode)
    long = worktree.directory / "long.py"
    long.write_bytes(long.read_bytes().replace(b"# beta", b"# BETA"))
    changes = await worktree.freeze()
    assert {file.path: (file.insertions, file.deletions) for file in changes.files} == dict.fromkeys(
        [*names, "long.py"], (1, 1)
    )
    landing = await apply_on_disk(found, await versions_of(found, changes))
    assert landing.conflicts == ()
    for name in names:
        assert (ends.path / name).read_bytes() == ends.fact_bytes(f"after:{name}")[0]
    for name in ("wide.txt", "latin1.txt", "blob.bin"):
        assert (ends.path / name).read_bytes() == ends.fact_bytes(f"kept:{name}")[0]
    assert (ends.path / "run.sh").stat().st_mode & 0o111


async def test_with_converted_line_ends_the_disk_form_is_compared_and_written(
    repository: RealRepository, tmp_path: Path
) -> None:
    repository.git("config", "core.autocrlf", "true")
    repository.write("a.txt", b"one\r\ntwo\r\nthree\r\n")
    found, worktree = await agent_on(repository, tmp_path / "trees")
    assert (worktree.directory / "a.txt").read_bytes() == b"one\r\ntwo\r\nthree\r\n"
    (worktree.directory / "a.txt").write_bytes(b"one\r\nTWO\r\nthree\r\n")
    landing = await apply_on_disk(found, await result_of(found, worktree))
    assert landing.conflicts == ()
    assert (repository.path / "a.txt").read_bytes() == b"one\r\nTWO\r\nthree\r\n"


async def test_r04_one_odd_name_is_applied_alone_and_then_all(case: Callable[[str], Case], tmp_path: Path) -> None:
    odd = case("r04")
    found, worktree = await agent_on(odd, tmp_path / "trees")
    names = [name.decode() for name in odd.fact_bytes("changed")]
    for name in names:
        (worktree.directory / name).write_bytes(b"first\nSECOND\nTHIRD\n")
    versions = await result_of(found, worktree)
    assert sorted(each.file.path for each in versions) == sorted(names)
    await apply_on_disk(found, choose(versions, paths=["*.txt"]).versions)
    assert [name for name in names if b"THIRD" in (odd.path / name).read_bytes()] == ["*.txt"]
    await apply_on_disk(found, choose(versions).versions)
    assert all((odd.path / name).read_bytes() == b"first\nSECOND\nTHIRD\n" for name in names)
    assert (odd.path / "ab.txt").read_bytes() == b"first\nsecond\nthird\n"
    assert not (odd.path / "x").exists()


async def test_hunks_can_be_applied_one_by_one(repository: RealRepository, tmp_path: Path) -> None:
    lines = [f"line {number}\n" for number in range(40)]
    repository.write("long.txt", "".join(lines))
    repository.commit_all()
    found, worktree = await agent_on(repository, tmp_path / "trees")
    changed = [*lines]
    changed[3] = "first\n"
    changed[20:22] = []
    changed[-1] = "no end"
    (worktree.directory / "long.txt").write_text("".join(changed))
    (worktree.directory / "other.txt").write_text("other\n")
    versions = await result_of(found, worktree)
    assert [hunk.header[:14] for hunk in versions[0].hunks] == ["@@ -1,7 +1,7 @", "@@ -18,8 +18,6", "@@ -37,4 +35,4"]
    middle = versions[0].hunks[1].id
    chosen = choose(versions, hunks=[middle]).versions
    assert [each.file.path for each in chosen] == ["long.txt"]
    await apply_on_disk(found, chosen)
    expected = [*lines]
    expected[20:22] = []
    assert (repository.path / "long.txt").read_text() == "".join(expected)
    await apply_on_disk(found, choose(versions, hunks=[hunk.id for hunk in versions[0].hunks]).versions)
    assert (repository.path / "long.txt").read_text() == "".join(changed)
    assert not (repository.path / "other.txt").exists()
    await apply_on_disk(found, choose(versions, hunks=[versions[1].hunks[0].id]).versions)
    assert (repository.path / "other.txt").read_text() == "other\n"


async def test_SEC_09_what_makes_editors_act_waits_until_it_is_named(
    repository: RealRepository, tmp_path: Path
) -> None:
    found, worktree = await agent_on(repository, tmp_path / "trees")
    inside = RealRepository(worktree.directory)
    inside.write(".vscode/tasks.json", "{}\n")
    inside.write("a.txt", "agent\n")
    versions = await result_of(found, worktree)
    chosen = choose(versions)
    assert [each.file.path for each in chosen.versions] == ["a.txt"]
    assert chosen.needs_own_accept == (".vscode/tasks.json",)
    await apply_on_disk(found, chosen.versions)
    assert not (repository.path / ".vscode").exists()
    await apply_on_disk(found, choose(versions, paths=[".vscode/tasks.json"]).versions)
    assert (repository.path / ".vscode/tasks.json").read_text() == "{}\n"


async def test_an_unknown_path_or_hunk_is_refused_by_name(repository: RealRepository, tmp_path: Path) -> None:
    found, worktree = await agent_on(repository, tmp_path / "trees")
    (worktree.directory / "a.txt").write_text("agent\n")
    versions = await result_of(found, worktree)
    with pytest.raises(OutpostError, match=r"the run did not change \*\.txt") as caught:
        choose(versions, paths=["*.txt"])
    assert caught.value.code == "configuration"
    with pytest.raises(OutpostError, match="no hunk nonsense"):
        choose(versions, hunks=["nonsense"])


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (".vscode/tasks.json", True),
        ("sub/.idea/workspace.xml", True),
        (".github/workflows/ci.yml", True),
        (".envrc", True),
        ("deep/.gitattributes", True),
        (".gitmodules", True),
        (".husky/pre-commit", True),
        ("AGENTS.md", True),
        ("docs/agents.md", True),
        ("outpost.toml", True),
        (".outpost/x", True),
        (".worktreeinclude", True),
        (".mcp.json", True),
        (".VSCODE/settings.json", True),
        ("project.code-workspace", True),
        (".gitlab-ci.yml", True),
        ("Jenkinsfile", True),
        ("src/main.py", False),
        ("README.md", False),
        ("vscode/tasks.json", False),
        ("github/x", False),
        ("docs/envrc", False),
    ],
)
def test_SEC_09_the_files_that_need_a_word_of_their_own(path: str, expected: bool) -> None:
    assert needs_own_accept(path) is expected


async def test_an_open_buffer_counts_before_the_disk(repository: RealRepository, tmp_path: Path) -> None:
    found, worktree = await agent_on(repository, tmp_path / "trees")
    (worktree.directory / "a.txt").write_text("one\ntwo\nTHREE\n")
    versions = await result_of(found, worktree)

    async def present(path: str) -> Present:
        return Present("file", b"ONE\ntwo\nthree\n") if path == "a.txt" else await present_on_disk(found.top, path)

    landing = await plan(found, versions, present, partial(names_on_disk, found.top))
    assert [operation.before for operation in landing.operations] == [b"ONE\ntwo\nthree\n"]
    assert landing.operations[0].after is not None


async def test_a_failure_in_the_middle_puts_everything_back(repository: RealRepository, tmp_path: Path) -> None:
    for number in range(5):
        repository.write(f"file-{number}.txt", "before\n")
    repository.commit_all()
    found, worktree = await agent_on(repository, tmp_path / "trees")
    for number in range(5):
        (worktree.directory / f"file-{number}.txt").write_text("after\n")
    (worktree.directory / "new" / "deep").mkdir(parents=True)
    (worktree.directory / "new" / "deep" / "file.txt").write_text("after\n")
    landing = await plan(
        found, await result_of(found, worktree), partial(present_on_disk, found.top), partial(names_on_disk, found.top)
    )
    repository.write("file-4.txt", "meanwhile\n")
    before = files_of(repository)
    with pytest.raises(OutpostError) as caught:
        await land(found.top, landing.operations, records=tmp_path / "state" / "landings")
    assert (caught.value.code, caught.value.details["path"]) == ("conflict", "file-4.txt")
    assert files_of(repository) == before
    assert not (repository.path / "new").exists()
    assert not list(repository.path.rglob(".outpost-*"))


_LINE = st.sampled_from([b"a\n", b"b\n", b"c\r\n", b"\n", b"long line of text\n"])
_TEXT = st.lists(_LINE, max_size=12).map(b"".join)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(base=_TEXT, current=_TEXT, result=_TEXT, tail=st.sampled_from([b"", b"end"]))
async def test_SNAP_06_a_merge_is_gits_own_or_none(
    repository: RealRepository, tmp_path: Path, base: bytes, current: bytes, result: bytes, tail: bytes
) -> None:
    found = await find_repository(repository.path)
    sides = [content + tail for content in (current, base, result)]
    merged = await merge_contents(found, *sides)
    for name, content in zip("cbr", sides, strict=True):
        (tmp_path / name).write_bytes(content)
    arguments = ["git", "merge-file", "-p", "-q", *(str(tmp_path / name) for name in "cbr")]
    done = subprocess.run(arguments, capture_output=True, check=False)
    assert merged == (done.stdout if done.returncode == 0 else None)


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_choosing_all_hunks_gives_the_result_and_none_the_base(data: st.DataObject) -> None:
    versions = data.draw(_hunked_versions())
    assert with_hunks(versions, [hunk.id for hunk in versions.hunks]) == versions.result
    assert with_hunks(versions, []) == versions.base


@st.composite
def _hunked_versions(draw: st.DrawFn) -> FileVersions:
    base, result = draw(_TEXT), draw(_TEXT)
    old, new = base.split(b"\n"), result.split(b"\n")
    lines = [[line + b"\n" for line in side[:-1]] + ([side[-1]] if side[-1] else []) for side in (old, new)]
    hunks = [
        Hunk(str(number), "", (a, b), (c, d))
        for number, (tag, a, b, c, d) in enumerate(difflib.SequenceMatcher(None, *lines, autojunk=False).get_opcodes())
        if tag != "equal"
    ]
    return FileVersions(ChangedFile("x", "modified"), base, result, tuple(hunks))
