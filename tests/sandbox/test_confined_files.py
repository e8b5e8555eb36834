from __future__ import annotations

import ctypes
import hashlib
import json
import os
import stat
import subprocess
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from outpost_lsp.errors import OutpostError
from outpost_lsp.sandbox.files import WorktreeFilesOnDisk
from outpost_lsp.sandbox.names import is_device_name, is_git_name
from outpost_lsp.worktrees.git import find_repository, run_git
from tests.support.repositories import CASES, Case, RealRepository

R02 = json.loads((CASES / "r02-links-out.expected.json").read_text())


async def files_of(repository: RealRepository) -> WorktreeFilesOnDisk:
    found = await find_repository(repository.path)
    return WorktreeFilesOnDisk(found.top, partial(run_git, found))


async def reason_of(awaitable: object) -> str:
    with pytest.raises(OutpostError) as caught:
        await awaitable  # type: ignore[misc]
    assert caught.value.code == "workspace"
    assert caught.value.details["path"] in caught.value.message
    return str(caught.value.details["reason"])


def outside_digest(case: Case) -> str:
    command = "find . -type f | sort | xargs sha256sum | sha256sum | cut -d' ' -f1"
    return subprocess.check_output(["sh", "-c", command], cwd=case.facts["outside"], text=True).strip()


@pytest.mark.parametrize("operation", R02["operations"], ids=lambda each: f"{each['op']}-{each.get('path', '')}")
async def test_SEC_07_r02_links_out_of_the_tree(case: Callable[[str], Case], operation: dict[str, str]) -> None:
    linked = case("r02")
    files = await files_of(linked)
    match operation["op"]:
        case "read":
            attempt = files.read(operation["path"], limit=1_000_000)
        case "write":
            attempt = files.write(operation["path"], b"written\n")  # type: ignore[assignment]
        case "delete":
            attempt = files.delete(operation["path"])  # type: ignore[assignment]
        case "list":
            attempt = files.listing(operation["path"])  # type: ignore[assignment]
        case "search":
            found = await run_git(await find_repository(linked.path), ["grep", "--untracked", operation["text"]])
            assert (found.status, found.stdout) == (1, b"")
            return
    if operation["expect"] == "refused":
        assert await reason_of(attempt) in {"escape", "link", "git"}
    else:
        result = await attempt
        if "gives" in operation:
            assert result == operation["gives"].encode()
        if "lands" in operation:
            assert (linked.path / operation["lands"]).read_bytes() == b"written\n"
        if operation["op"] == "delete":
            assert not os.path.lexists(linked.path / operation["path"])
    assert outside_digest(linked) == linked.facts["outside_digest"]
    assert not (Path(linked.facts["outside"]) / "not-yet.txt").exists()
    assert [path.name for path in (Path(linked.facts["outside"]) / "box").iterdir()] == ["kept.txt"]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("a.txt", "a.txt"),
        ("./a.txt", "a.txt"),
        ("src//main.py", "src/main.py"),
        ("src\\main.py", "src/main.py"),
        ("src/../a.txt", "a.txt"),
        (".", ""),
        ("", ""),
        ("src/", "src"),
        (" a.txt ", " a.txt "),
    ],
)
async def test_BTOOL_01_a_path_is_brought_to_one_form(repository: RealRepository, path: str, expected: str) -> None:
    files = await files_of(repository)
    assert files.normalise(path) == expected
    assert files.normalise(f"{repository.path}/{path}" if path else str(repository.path)) == expected


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("../x", "escape"),
        ("src/../../x", "escape"),
        ("..\\x", "escape"),
        ("/etc/passwd", "escape"),
        ("\\etc\\passwd", "escape"),
        ("C:\\x", "escape"),
        ("c:x", "escape"),
        ("a\0b", "escape"),
        ("a\ud800b", "escape"),
        (".git/config", "git"),
        ("src/.GIT/config", "git"),
        ("aux.txt", "kind"),
    ],
)
async def test_BTOOL_01_a_path_that_leaves_is_refused_by_name(
    repository: RealRepository, path: str, reason: str
) -> None:
    files = await files_of(repository)
    with pytest.raises(OutpostError) as caught:
        files.normalise(path)
    assert (caught.value.code, caught.value.details["reason"]) == ("workspace", reason)


async def test_BTOOL_01_a_sibling_whose_name_begins_like_the_root_is_outside(repository: RealRepository) -> None:
    files = await files_of(repository)
    with pytest.raises(OutpostError):
        files.normalise(f"{repository.path}-other/x")


@pytest.mark.parametrize(
    "name",
    [".git", ".GIT", ".Git", ".git.", ".git ", ".git. .", "git~1", "GIT~1", ".g\u200cit", "\ufeff.git", ".git\u200d",
     ".g\u00adit", ".git::$INDEX_ALLOCATION", ".git:x", "\uff0egit", ".\uff47\uff49\uff54", ".gi\ufe00t"],
)  # fmt: skip
async def test_SEC_08_git_in_every_spelling_is_refused_for_every_operation(
    repository: RealRepository, name: str
) -> None:
    assert is_git_name(name)
    files = await files_of(repository)
    for path in (name, f"{name}/config", f"src/{name}/hooks/x"):
        for attempt in (
            files.read(path, limit=10),
            files.write(path, b""),
            files.delete(path),
            files.move("a.txt", path),
            files.move(path, "b.txt"),
            files.kind(path),
            files.listing(path),
        ):
            assert await reason_of(attempt) == "git"


@pytest.mark.parametrize("name", [".gitignore", ".github", "git", "gitx", ".gitmodules", "x.git", "agit~1", ".git2"])
def test_names_that_only_look_like_git_are_allowed(name: str) -> None:
    assert not is_git_name(name)


def test_BTOOL_04_windows_devices_are_known_by_their_stem() -> None:
    for name in ("con", "NUL", "aux.c", "COM1", "lpt9.txt", "nul .x", "conin$", "prn:x"):
        assert is_device_name(name)
    for name in ("console", "com", "com10", "auxiliary.c", "nulx", "lpt"):
        assert not is_device_name(name)


async def test_special_files_and_folders_are_refused(repository: RealRepository) -> None:
    os.mkfifo(repository.path / "pipe")
    files = await files_of(repository)
    assert await reason_of(files.read("pipe", limit=10)) == "kind"
    assert await reason_of(files.write("pipe", b"x")) == "kind"
    assert await reason_of(files.delete("pipe")) == "kind"
    assert await reason_of(files.read("src", limit=10)) == "kind"
    assert await reason_of(files.read(".", limit=10)) == "kind"
    assert await reason_of(files.write("src", b"x")) == "kind"
    assert await reason_of(files.write(".", b"x")) == "kind"
    assert await reason_of(files.delete("src")) == "kind"
    assert await reason_of(files.move("src", "to")) == "kind"
    assert await reason_of(files.read("a.txt/x", limit=10)) == "missing"
    assert await reason_of(files.read("no/such", limit=10)) == "missing"
    assert await reason_of(files.read("x" * 300, limit=10)) == "kind"
    assert [await files.kind(path) for path in ("pipe", "src", ".", "a.txt", "no", "a.txt/x")] == [
        "other", "directory", "directory", "file", None, None,
    ]  # fmt: skip


async def test_a_file_larger_than_the_limit_is_named_with_both_sizes(repository: RealRepository) -> None:
    files = await files_of(repository)
    assert await files.read("a.txt", limit=14) == b"one\ntwo\nthree\n"
    with pytest.raises(OutpostError, match="has 14 bytes; the limit is 13") as caught:
        await files.read("a.txt", limit=13)
    assert caught.value.details["size"] == 14


async def test_BTOOL_17_18_a_write_makes_parents_keeps_the_mode_and_replaces_whole(repository: RealRepository) -> None:
    files = await files_of(repository)
    await files.write("new/deep/file.txt", b"text\r\n")
    assert (repository.path / "new/deep/file.txt").read_bytes() == b"text\r\n"
    script = repository.write("run.sh", "old", mode=0o755)
    inode = script.stat().st_ino
    await files.write("run.sh", b"new")
    assert stat.S_IMODE(script.stat().st_mode) == 0o755
    assert script.stat().st_ino != inode
    assert sorted(path.name for path in repository.path.iterdir()) == [".git", "a.txt", "new", "run.sh", "src"]


async def test_BTOOL_18_a_link_at_the_target_is_refused_and_left(repository: RealRepository) -> None:
    (repository.path / "link").symlink_to("a.txt")
    files = await files_of(repository)
    assert await reason_of(files.write("link", b"x")) == "link"
    assert (repository.path / "a.txt").read_text() == "one\ntwo\nthree\n"
    assert await files.read("link", limit=100) == b"one\ntwo\nthree\n"
    assert await files.kind("link") == "link"


@pytest.mark.parametrize("text", ["meanwhile\n", "one\ntwo\nthree\nand it has grown\n", ""])
async def test_BTOOL_21_a_write_with_an_expectation_fails_when_the_file_changed(
    repository: RealRepository, text: str
) -> None:
    files = await files_of(repository)
    before = await files.read("a.txt", limit=100)
    repository.write("a.txt", text)
    with pytest.raises(OutpostError) as caught:
        await files.write("a.txt", b"mine\n", expected=before)
    assert (caught.value.code, caught.value.details["reason"]) == ("conflict", "changed")
    assert (repository.path / "a.txt").read_text() == text
    repository.write("a.txt", "meanwhile\n")
    await files.write("a.txt", b"mine\n", expected=b"meanwhile\n")
    assert (repository.path / "a.txt").read_text() == "mine\n"
    assert await reason_of(files.write("no", b"x", expected=b"")) == "missing"
    assert await reason_of(files.write("no", b"x", create=False)) == "missing"


async def test_BTOOL_23_delete_and_move_touch_one_file_only(repository: RealRepository) -> None:
    files = await files_of(repository)
    (repository.path / "link").symlink_to("a.txt")
    await files.delete("link")
    assert (repository.path / "a.txt").exists()
    await files.move("a.txt", "x/y/b.txt")
    assert (repository.path / "x/y/b.txt").read_text() == "one\ntwo\nthree\n"
    assert await reason_of(files.move("x/y/b.txt", "src/main.py")) == "exists"
    assert await reason_of(files.move("no", "to")) == "missing"
    assert await reason_of(files.delete("no")) == "missing"
    assert (repository.path / "src/main.py").read_text() == "print('hello')\n"


async def test_the_listing_leaves_out_what_a_sparse_checkout_leaves_out(repository: RealRepository) -> None:
    repository.write("far/away.txt", "x")
    repository.write("near/here.txt", "x")
    repository.commit_all()
    repository.git("sparse-checkout", "set", "--cone", "near")
    files = await files_of(repository)
    listed = await files.listing(".")
    assert "near/here.txt" in listed
    assert "far/away.txt" not in listed
    for name in listed:
        assert await files.kind(name) == "file"


async def test_BTOOL_14_16_the_listing_is_tracked_and_untracked_not_ignored_and_present(
    repository: RealRepository, tmp_path: Path
) -> None:
    repository.write(".gitignore", "*.log\n")
    repository.write("gone.txt", "x")
    repository.commit_all()
    (repository.path / "gone.txt").unlink()
    repository.write("x.log", "x")
    repository.write("src/new.py", "x")
    repository.write("src/[a].py", "x")
    (repository.path / "folder").symlink_to("src")
    files = await files_of(repository)
    assert list(await files.listing(".")) == [
        ".gitignore",
        "a.txt",
        "folder",
        "src/[a].py",
        "src/main.py",
        "src/new.py",
    ]
    assert list(await files.listing("src")) == ["src/[a].py", "src/main.py", "src/new.py"]
    assert list(await files.listing("folder")) == ["src/[a].py", "src/main.py", "src/new.py"]
    assert list(await files.listing("src/[a].py")) == ["src/[a].py"]
    assert list(await files.listing("s*")) == []
    assert list(await files.listing("gone.txt")) == []


async def test_r04_every_odd_name_can_be_listed_read_and_written(case: Callable[[str], Case]) -> None:
    odd = case("r04")
    files = await files_of(odd)
    listed = await files.listing(".")
    names = [name.decode() for name in odd.fact_bytes("changed")]
    assert set(names) <= set(listed)
    for name in names:
        assert await files.read(name, limit=100) == b"first\nSECOND\nthird\n"
        await files.write(name, b"first\nSECOND\nTHIRD\n", expected=b"first\nSECOND\nthird\n")
        assert (odd.path / name).read_bytes() == b"first\nSECOND\nTHIRD\n"
    assert (odd.path / "ab.txt").read_bytes() == b"first\nsecond\nthird\n"
    assert not any("\udcff" in name or "\ufffd" in name for name in listed)
    raw = os.fsencode(odd.path) + b"/" + odd.fact_bytes("not_utf8")[0]
    assert Path(os.fsdecode(raw)).read_bytes() == b"first\nSECOND\nthird\n"


async def test_SEC_07_a_folder_swapped_for_a_link_never_lets_a_write_out(
    repository: RealRepository, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file.txt").write_text("outside\n")
    folder, link = repository.path / "folder", repository.path / "link"
    folder.mkdir()
    link.symlink_to(outside)
    stop = threading.Event()
    swaps = 0

    def swap() -> None:
        nonlocal swaps
        exchange, here, mode = ctypes.CDLL(None).renameat2, -100, 2
        while swaps < 2_000 or not stop.is_set():
            assert exchange(here, bytes(folder), here, bytes(link), mode) == 0
            swaps += 1

    files = await files_of(repository)
    thread = threading.Thread(target=swap)
    thread.start()
    outcomes = set()
    try:
        for number in range(500):
            try:
                await files.write(f"folder/file-{number % 7}.txt", b"inside\n")
                outcomes.add("written")
                content = await files.read("folder/file.txt", limit=100)
                assert content != b"outside\n"
            except OutpostError as error:
                if error.details["reason"] != "missing":
                    outcomes.add(str(error.details["reason"]))
    finally:
        stop.set()
        thread.join()
    assert swaps >= 2_000
    assert outcomes == {"written", "escape"}
    assert [path.name for path in outside.iterdir()] == ["file.txt"]
    assert hashlib.sha256((outside / "file.txt").read_bytes()).hexdigest() == hashlib.sha256(b"outside\n").hexdigest()
