from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import anyio
import pytest

from outpost_lsp.domain.sandbox import Command, Lease
from outpost_lsp.errors import OutpostError
from outpost_lsp.sandbox.environment import allowed_environment, merged_variables, parse_variables
from outpost_lsp.sandbox.lease import BorrowedLease, HostLease
from outpost_lsp.worktrees.git import find_repository, run_git
from tests.support.repositories import RealRepository


async def lease_on(repository: RealRepository, tmp_path: Path) -> HostLease:
    found = await find_repository(repository.path)
    home = tmp_path / "sandbox-home"
    home.mkdir(exist_ok=True)
    return HostLease(found.top, home, partial(run_git, found), {"PATH": os.environ["PATH"]})


def sh(script: str, **options: object) -> Command:
    return Command(executable="sh", arguments=("-c", script), **options)  # type: ignore[arg-type]


async def test_a_lease_runs_commands_git_and_files_in_its_root(repository: RealRepository, tmp_path: Path) -> None:
    lease: Lease = await lease_on(repository, tmp_path)
    assert (await lease.invoke(sh("pwd; echo $HOME"))).stdout == f"{repository.path}\n{tmp_path}/sandbox-home\n"
    assert (await lease.invoke(sh("pwd", directory="src"))).stdout == f"{repository.path}/src\n"
    assert (await lease.invoke(sh("echo $X", variables={"X": "y"}))).stdout == "y\n"
    assert (await lease.invoke(sh("cat", stdin="ü"))).stdout == "ü"
    assert (await lease.git(["ls-files"])).stdout == b"a.txt\nsrc/main.py\n"
    assert await lease.files.read("a.txt", limit=100) == b"one\ntwo\nthree\n"


@pytest.mark.parametrize("directory", ["../", "no/such", "a.txt", ".git", "out"])
async def test_a_command_cannot_begin_outside_the_root(
    repository: RealRepository, tmp_path: Path, directory: str
) -> None:
    (repository.path / "out").symlink_to(tmp_path)
    lease = await lease_on(repository, tmp_path)
    with pytest.raises(OutpostError) as caught:
        await lease.invoke(sh("pwd", directory=directory))
    assert caught.value.code == "workspace"


async def test_LOCAL_04_after_release_every_call_is_refused_and_a_second_release_does_nothing(
    repository: RealRepository, tmp_path: Path
) -> None:
    lease = await lease_on(repository, tmp_path)
    await lease.release()
    await lease.release()
    for call in (
        lease.invoke(sh("true")),
        lease.git(["status"]),
        lease.upload(tmp_path, "x"),
        lease.download("a.txt", tmp_path),
    ):
        with pytest.raises(OutpostError) as caught:
            await call
        assert caught.value.code == "provider"


async def test_LOCAL_04_a_release_ends_running_commands_and_waits_for_them(
    repository: RealRepository, tmp_path: Path
) -> None:
    lease = await lease_on(repository, tmp_path)
    faults: list[OutpostError] = []

    async def run() -> None:
        try:
            await lease.invoke(sh("echo $$ > started; exec sleep 1000"))
        except OutpostError as error:
            faults.append(error)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        with anyio.fail_after(60):
            while not (repository.path / "started").exists() or not (repository.path / "started").read_text():
                await anyio.sleep(0.01)
        await lease.release()
        assert not Path(f"/proc/{(repository.path / 'started').read_text().strip()}").exists()
    assert [error.code for error in faults] == ["aborted"]


async def test_SBX_08_a_borrowed_lease_has_the_same_root_and_cannot_be_released(
    repository: RealRepository, tmp_path: Path
) -> None:
    lease = await lease_on(repository, tmp_path)
    borrowed: Lease = BorrowedLease(lease)
    assert (borrowed.root, borrowed.home, borrowed.live_input) == (lease.root, lease.home, lease.live_input)
    with pytest.raises(OutpostError) as caught:
        await borrowed.release()
    assert caught.value.code == "configuration"
    assert (await borrowed.invoke(sh("echo fine"))).stdout == "fine\n"
    assert await borrowed.files.read("a.txt", limit=100) == b"one\ntwo\nthree\n"


async def test_SBX_08_after_the_call_every_method_of_it_fails_and_the_lease_lives_on(
    repository: RealRepository, tmp_path: Path
) -> None:
    lease = await lease_on(repository, tmp_path)
    borrowed = BorrowedLease(lease)
    files = borrowed.files
    borrowed.end()
    calls = (
        borrowed.invoke(sh("true")),
        borrowed.git(["status"]),
        borrowed.upload(tmp_path, "x"),
        borrowed.download("a.txt", tmp_path),
        files.read("a.txt", limit=10),
        files.write("a.txt", b""),
        files.delete("a.txt"),
        files.move("a.txt", "b.txt"),
        files.kind("a.txt"),
        files.listing("."),
    )
    for call in calls:
        with pytest.raises(OutpostError) as caught:
            await call
        assert caught.value.code == "aborted"
    assert (repository.path / "a.txt").read_text() == "one\ntwo\nthree\n"
    assert (await lease.invoke(sh("echo fine"))).stdout == "fine\n"


async def test_SBX_08_what_a_forgotten_task_still_runs_is_ended_with_the_call(
    repository: RealRepository, tmp_path: Path
) -> None:
    borrowed = BorrowedLease(await lease_on(repository, tmp_path))
    faults: list[OutpostError] = []

    async def run() -> None:
        try:
            await borrowed.invoke(sh("echo > started; exec sleep 1000"))
        except OutpostError as error:
            faults.append(error)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        with anyio.fail_after(60):
            while not (repository.path / "started").exists():
                await anyio.sleep(0.01)
        borrowed.end()
    assert [error.code for error in faults] == ["aborted"]


async def test_an_observer_that_raises_inside_a_call_changes_nothing(
    repository: RealRepository, tmp_path: Path
) -> None:
    seen: list[str] = []

    def on_output(channel: str, text: str) -> None:
        seen.append(text)
        raise ZeroDivisionError

    borrowed = BorrowedLease(await lease_on(repository, tmp_path), on_output)
    own: list[str] = []
    result = await borrowed.invoke(sh("echo x", observe=lambda _, text: own.append(text)))
    assert (result.status, seen, own) == (0, ["x\n"], ["x\n"])


async def test_LOCAL_03_binary_files_links_and_modes_survive_the_way_in_and_out(
    repository: RealRepository, tmp_path: Path
) -> None:
    lease = await lease_on(repository, tmp_path)
    source = tmp_path / "source"
    (source / "deep").mkdir(parents=True)
    (source / "deep" / "blob").write_bytes(bytes(range(256)))
    (source / "run.sh").write_text("#!/bin/sh\n")
    (source / "run.sh").chmod(0o755)
    (source / "link").symlink_to("/etc/passwd")
    await lease.upload(source, "in/side")
    inside = repository.path / "in" / "side"
    assert (inside / "deep" / "blob").read_bytes() == bytes(range(256))
    assert (inside / "run.sh").stat().st_mode & 0o777 == 0o755
    assert (inside / "link").readlink() == Path("/etc/passwd")
    await lease.upload(source / "run.sh", "a.txt")
    assert (repository.path / "a.txt").read_text() == "#!/bin/sh\n"
    await lease.download("in/side", tmp_path / "back" / "again")
    assert (tmp_path / "back/again/deep/blob").read_bytes() == bytes(range(256))
    assert (tmp_path / "back/again/link").is_symlink()
    await lease.download("a.txt", repository.path / "a.txt")
    assert (repository.path / "a.txt").read_text() == "#!/bin/sh\n"


async def test_an_upload_does_not_leave_through_a_link(repository: RealRepository, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (repository.path / "out").symlink_to(outside)
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "file").write_text("x")
    lease = await lease_on(repository, tmp_path)
    for destination in ("out/x", "../x", ".git/hooks"):
        with pytest.raises(OutpostError) as caught:
            await lease.upload(tmp_path / "source", destination)
        assert caught.value.code == "workspace"
    await lease.upload(tmp_path / "source", "out")
    assert (repository.path / "out" / "file").read_text() == "x"
    assert not (repository.path / "out").is_symlink()
    assert list(outside.iterdir()) == []
    with pytest.raises(OutpostError, match="does not exist"):
        await lease.upload(tmp_path / "missing", "x")


def test_SEC_13_only_listed_variables_pass_and_never_a_key() -> None:
    host = {
        "PATH": "/bin",
        "HOME": "/root",
        "LC_ALL": "C",
        "OPENAI_API_KEY": "k",
        "MY_KEY": "k",
        "TOOL": "x",
        "AWS_SECRET": "s",
    }
    assert allowed_environment(host) == {"PATH": "/bin", "LC_ALL": "C"}
    assert allowed_environment(host, names=["TOOL", "MY_KEY"], secret=["MY_KEY"]) == {
        "PATH": "/bin",
        "LC_ALL": "C",
        "TOOL": "x",
    }


def test_ENV_04_a_variable_set_twice_is_refused_by_name() -> None:
    assert merged_variables({"A": "1"}, {"B": "2"}) == {"A": "1", "B": "2"}
    with pytest.raises(OutpostError) as caught:
        merged_variables({"A": "1"}, {"A": "2"})
    assert caught.value.details["keys"] == ["A"]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("A=b", {"A": "b"}),
        ("  export A = b c # comment", {"A": "b c"}),
        ("A=b#c", {"A": "b#c"}),
        ("A='$x \\n' # c", {"A": "$x \\n"}),
        ('A="x\\ty\\"\\\\\\q" # c', {"A": 'x\ty"\\\\q'}),
        ("A=", {}),
        ("HOSTED=", {"HOSTED": "from the host"}),
        ("HOSTED=''", {"HOSTED": "from the host"}),
        ("A=#", {}),
        ('A="open', {}),
        ("# A=b", {}),
        ("1A=b", {}),
        ("nonsense", {}),
        ("A=b=c", {"A": "b=c"}),
    ],
)
def test_ENV_05_a_file_of_variables_is_read_line_by_line(line: str, expected: dict[str, str]) -> None:
    host = {"HOSTED": "from the host", "OTHER": "never"}
    assert parse_variables(f"{line}\n", host) == expected


def test_SEC_13_a_server_can_forbid_others_to_read_its_memory() -> None:
    program = (
        "import ctypes\n"
        "from outpost_lsp.sandbox.process import forbid_inspection\n"
        "assert forbid_inspection()\n"
        "assert ctypes.CDLL(None).prctl(3, 0, 0, 0, 0) == 0\n"
        "open('/proc/self/fd/0').close()\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, stdin=subprocess.DEVNULL)
