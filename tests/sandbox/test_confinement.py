from __future__ import annotations

import os
import shutil
import socket
import sys
from functools import partial
from pathlib import Path

import pytest

from outpost_lsp.domain.sandbox import Command, CommandResult
from outpost_lsp.errors import OutpostError
from outpost_lsp.sandbox.confinement import Confinement, probe_confinement
from outpost_lsp.sandbox.lease import HostLease
from outpost_lsp.worktrees.git import find_repository, run_git
from outpost_lsp.worktrees.shadow import shadow_git_directory
from outpost_lsp.worktrees.worktree import Worktree, open_worktree
from tests.support.repositories import RealRepository

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")


class Confined:
    """A worktree with a lease whose commands run in bubblewrap."""

    def __init__(self, worktree: Worktree, lease: HostLease) -> None:
        self.worktree = worktree
        self.lease = lease

    async def __call__(self, script: str, **options: object) -> CommandResult:
        return await self.lease.invoke(Command(executable="sh", arguments=("-c", script), **options))  # type: ignore[arg-type]


@pytest.fixture
async def confined(repository: RealRepository, tmp_path: Path) -> Confined:
    found = await find_repository(repository.path)
    worktree = await open_worktree(found, repository.head, tmp_path / "trees", run_id="run")
    shadow = await shadow_git_directory(worktree.repository, tmp_path / "shadow")
    home = tmp_path / "sandbox-home"
    home.mkdir()
    confinement = Confinement(worktree.directory, shadow.folder, shadow.objects)
    git = partial(run_git, worktree.repository)
    return Confined(worktree, HostLease(worktree.directory, home, git, {"PATH": "/usr/bin:/bin"}, confinement))


async def test_the_probe_says_yes_here_and_why_not_elsewhere(tmp_path: Path) -> None:
    assert await probe_confinement(path=os.environ["PATH"]) == await probe_confinement(path=os.environ["PATH"])
    assert (await probe_confinement(path=os.environ["PATH"])).is_available
    missing = await probe_confinement(path=str(tmp_path))
    assert not missing.is_available
    assert "install the package bubblewrap" in missing.reason
    (tmp_path / "bwrap").write_text("#!/bin/sh\necho 'setting up uid map: Permission denied' >&2\nexit 1\n")
    (tmp_path / "bwrap").chmod(0o755)
    broken = await probe_confinement(path=f"{tmp_path}:{os.environ['PATH']}")
    assert not broken.is_available
    assert "setting up uid map: Permission denied" in broken.reason


async def test_SEC_12_the_worktree_is_writable_and_a_private_temporary_folder_too(confined: Confined) -> None:
    result = await confined("echo new > new.txt && echo x > /tmp/x && cat a.txt && pwd && echo $HOME $TMPDIR")
    assert (result.status, result.stderr) == (0, "")
    assert result.stdout == f"one\ntwo\nthree\n{confined.worktree.directory}\n/tmp/home /tmp\n"
    assert (confined.worktree.directory / "new.txt").read_text() == "new\n"
    assert not Path("/tmp/x").exists()


async def test_SEC_12_the_home_folder_the_checkout_and_the_rest_of_the_disk_are_out_of_reach(
    confined: Confined, repository: RealRepository, private_home: Path, tmp_path: Path
) -> None:
    secret = private_home / ".ssh"
    secret.mkdir()
    (secret / "id").write_text("secret")
    before = repository.state()
    for script in (
        f"cat {secret}/id",
        f"ls {private_home}",
        "ls /root",
        f"cat {repository.path}/a.txt",
        f"echo x > {repository.path}/planted",
        f"echo x > {repository.path}/.git/config",
        f"cat {repository.path}/.git/config",
        f"echo x > {repository.path}/.git/objects/planted",
        "echo x > /etc/planted",
        "echo x > /usr/planted",
        "echo x > /planted",
        "mkdir /home/planted",
        f"cat {tmp_path}/secret",
        "cat /etc/shadow",
    ):
        result = await confined(script)
        # A folder on the way to a mounted one exists inside, empty and private; what is written there reaches nobody.
        assert result.status != 0 or f"> {repository.path}" in script, script
        assert "secret" not in result.stdout
    assert repository.state() == before
    assert not (repository.path / ".git" / "objects" / "planted").exists()


async def test_SEC_12_there_is_no_network_and_no_other_process(confined: Confined) -> None:
    connect = "import socket; socket.create_connection(('127.0.0.1', {port}), 2)"
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port), 2):
            pass
        result = await confined(f'/usr/bin/python3 -c "{connect.format(port=port)}"')
        assert result.status != 0
        assert "Connection refused" in result.stderr or "unreachable" in result.stderr
    assert (await confined(f"kill -0 {os.getpid()}")).status != 0
    assert (await confined(f"test -e /proc/{os.getpid()}/environ && test $$ -gt {os.getpid()}")).status != 0
    environment = await confined("cat /proc/1/environ | tr '\\0' '\\n'")
    assert "PYTEST" not in environment.stdout


async def test_the_worktrees_git_file_cannot_be_repointed(confined: Confined, tmp_path: Path) -> None:
    before = (confined.worktree.directory / ".git").read_bytes()
    for script in ("echo 'gitdir: /tmp/evil' > .git", "rm -f .git", "mv .git x", "ln -sf /tmp/evil .git"):
        assert (await confined(script)).status != 0, script
    assert (confined.worktree.directory / ".git").read_bytes() == before


@pytest.mark.skipif(not Path("/usr/bin/git").exists(), reason="git is not a system program here")
async def test_git_works_inside_and_nothing_of_it_reaches_the_users_repository(
    confined: Confined, repository: RealRepository
) -> None:
    before = repository.state()
    objects = sorted((repository.path / ".git" / "objects").rglob("*"))
    script = (
        "git status --porcelain && echo changed > a.txt && git diff --stat && git add -A && git commit -q -m inside"
        " && git log --oneline | wc -l && git config core.hooksPath /tmp/evil && git branch mine && git status --porcelain"
    )
    result = await confined(script)
    assert (result.status, result.stderr) == (0, "")
    assert " a.txt | " in result.stdout
    assert result.stdout.endswith("2\n")
    assert repository.state() == before
    assert sorted((repository.path / ".git" / "objects").rglob("*")) == objects
    assert confined.worktree.repository.git_dir.joinpath("HEAD").read_text().strip() == repository.head
    changes = await confined.worktree.changes()
    assert [file.path for file in changes.files] == ["a.txt"]


async def test_a_confined_command_ends_with_everything_it_started(confined: Confined) -> None:
    mark = f"1001.{os.getpid()}"
    with pytest.raises(OutpostError) as caught:
        await confined(f"setsid sleep {mark} & sleep {mark}", deadline_s=1)
    assert caught.value.code == "timeout"
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            assert mark.encode() not in entry.read_bytes()
        except OSError:
            continue


async def test_extra_folders_are_readable_and_stay_read_only(repository: RealRepository, tmp_path: Path) -> None:
    extra = tmp_path / "toolchain"
    extra.mkdir()
    (extra / "tool").write_text("tool")
    confinement = Confinement(repository.path, readable=(extra, tmp_path / "absent"))
    found = await find_repository(repository.path)
    lease = HostLease(found.top, tmp_path, partial(run_git, found), {"PATH": "/usr/bin:/bin"}, confinement)
    result = await lease.invoke(Command(executable="cat", arguments=(f"{extra}/tool",)))
    assert result.stdout == "tool"
    assert (await lease.invoke(Command(executable="touch", arguments=(f"{extra}/new",)))).status != 0
    inside = await lease.invoke(Command(executable="sh", arguments=("-c", "pwd"), directory="src"))
    assert inside.stdout == f"{repository.path}/src\n"
    assert sys.platform == "linux"


async def test_SEC_12_a_program_that_one_talks_to_is_confined_as_well_and_leaves_nothing(
    confined: Confined, private_home: Path
) -> None:
    (private_home / "secret").write_text("secret")
    script = f"echo ready; while read line; do cat {private_home}/secret 2>&1; echo said $line; done"
    program = await confined.lease.spawn(Command(executable="sh", arguments=("-c", script)))
    assert await program.line(1_000) == b"ready"
    await program.send(b"hello\n")
    refused = await program.line(1_000)
    assert refused is not None
    assert b"No such file" in refused
    assert await program.line(1_000) == b"said hello"
    await program.end()
    assert await program.status(0) is not None
    stuck = await confined.lease.spawn(Command(executable="sh", arguments=("-c", "echo ready; sleep 987654")))
    assert await stuck.line(1_000) == b"ready"
    await stuck.end(grace_s=0.1)
    assert not [path for path in Path("/proc").glob("[0-9]*/cmdline") if b"987654" in readable(path)]


def readable(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
