"""What a process is given, what is kept of it, and that its end is seen, whatever the system offers to see it by;
no thread waits, and an application's own way of waiting is left alone.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from outpost_lsp.errors import OutpostError
from outpost_lsp.worktrees.child import see_through
from outpost_lsp.worktrees.git import find_repository, run_git, spawn
from outpost_lsp.worktrees.spawned import Spawned
from tests.support.repositories import make_repository


def started(program: str, *, has_input: bool = False) -> Spawned:
    return spawn(sys.executable, ["-I", "-c", program], os.environ, has_input=has_input)


@pytest.fixture(params=["told by a descriptor", "looked for"])
def end_seen(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "looked for":

        def refused(_pid: int) -> int:
            raise PermissionError("not in this container")

        monkeypatch.setattr(os, "pidfd_open", refused, raising=False)


@pytest.mark.usefixtures("end_seen")
async def test_a_process_that_lives_on_without_its_pipes_is_waited_for() -> None:
    program = "import os, sys, time; os.close(1); os.close(2); time.sleep(0.2); os._exit(3)"
    process = started(program)
    assert (await see_through(process, None, max_output=10, deadline_s=60)).status == 3
    assert process.returncode == 3


@pytest.mark.usefixtures("end_seen")
async def test_a_megabyte_goes_in_and_comes_back_beside_errors() -> None:
    program = (
        "import sys; data = sys.stdin.buffer.read(); sys.stderr.write('e' * 90_000); sys.stdout.buffer.write(data)"
    )
    given = bytes(range(256)) * 4096
    ended = await see_through(started(program, has_input=True), given, max_output=len(given), deadline_s=60)
    assert ended.stdout == given
    assert ended.stderr == b"e" * 65_536
    assert (ended.status, ended.truncated) == (0, False)


async def test_git_is_told_of_the_ends_of_its_helpers_where_the_application_is_not() -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        process = started("import signal; print(signal.getsignal(signal.SIGCHLD) is signal.SIG_DFL)")
        ended = await see_through(process, None, max_output=100, deadline_s=60)
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert ended.stdout == b"True\n"


async def test_an_end_that_nobody_knows_is_not_taken_for_success(tmp_path: Path) -> None:
    repository = await find_repository(make_repository(tmp_path / "repository", {"a": "a\n"}).path)
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        with pytest.raises(OutpostError, match="How git ended is unknown"):
            await run_git(repository, ["rev-parse", "HEAD"])
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert (await run_git(repository, ["rev-parse", "HEAD"])).status == 0


async def test_input_that_is_not_read_is_dropped() -> None:
    process = started("import os; os.close(0); print('enough')", has_input=True)
    ended = await see_through(process, b"x" * 1_000_000, max_output=100, deadline_s=60)
    assert (ended.status, ended.stdout) == (0, b"enough\n")


async def test_no_input_is_an_end_of_input() -> None:
    ended = await see_through(started("print(input())", has_input=True), b"", max_output=100, deadline_s=60)
    assert ended.status == 1
    assert b"EOFError" in ended.stderr


async def test_a_signal_is_128_and_its_number() -> None:
    ended = await see_through(started("import os; os.kill(os.getpid(), 10)"), None, max_output=1, deadline_s=60)
    assert ended.status == 138


@pytest.mark.parametrize("how", ["deadline", "cancelled", "too much"])
async def test_nothing_is_left_of_one_that_is_ended(how: str) -> None:
    says = "print('x' * 5000, flush=True)" if how == "too much" else "print('x', flush=True)"
    program = f"import subprocess, sys, time; subprocess.Popen(['sleep', '100']); {says}; time.sleep(100)"
    process = started(program)
    with anyio.move_on_after(0.5 if how == "cancelled" else None):
        if how == "deadline":
            with pytest.raises(TimeoutError):
                await see_through(process, None, max_output=100, deadline_s=0.5)
        else:
            ended = await see_through(process, None, max_output=100, deadline_s=60)
            assert (ended.truncated, ended.status, len(ended.stdout)) == (True, 0, 100)
    assert process.returncode is not None
    with anyio.fail_after(60):
        while in_session(process.pid):  # A killed process is there until it has its turn to die.
            await anyio.sleep(0.01)


@pytest.mark.skipif(sys.platform != "linux", reason="descriptors of processes are Linux's")
async def test_no_thread_waits_for_a_git_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = await find_repository(make_repository(tmp_path / "repository", {"a": "a\n"}).path)
    started: list[str] = []
    start = threading.Thread.start

    def noted(thread: threading.Thread) -> None:
        started.append(thread.name)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", noted)
    async with anyio.create_task_group() as tasks:
        for _ in range(8):
            tasks.start_soon(run_git, repository, ["rev-parse", "HEAD"])
    assert not [name for name in started if name.startswith("waitpid")]


async def test_the_status_and_the_output_are_the_processes_own(tmp_path: Path) -> None:
    made = make_repository(tmp_path / "repository", {"a": "a\n"})
    repository = await find_repository(made.path)
    head, missing = await asyncio.gather(
        run_git(repository, ["rev-parse", "HEAD"]), run_git(repository, ["cat-file", "-e", "0" * 40])
    )
    assert (head.status, head.stdout.decode().strip()) == (0, made.head)
    assert missing.status == 1


@pytest.mark.parametrize("chosen", ["", "class Own(Default): pass\nasyncio.set_event_loop_policy(Own())\n"])
def test_the_ways_of_the_application_are_left_alone(chosen: str) -> None:
    program = (
        "import asyncio, sys\n"
        "Default = asyncio.DefaultEventLoopPolicy\n"
        f"{chosen}"
        "from outpost_lsp.worktrees.git import git_version\n"
        "assert asyncio.run(git_version())\n"
        "if sys.version_info < (3, 12):\n"
        "    watcher = asyncio.get_event_loop_policy().get_child_watcher()\n"
        "    assert type(watcher) is asyncio.ThreadedChildWatcher, watcher\n"
    )
    subprocess.run([sys.executable, "-W", "ignore::DeprecationWarning", "-c", program], check=True)


def in_session(leader: int) -> list[str]:
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == leader and fields[0] not in "ZX":
            found.append(status.parent.name)
    return found


@pytest.mark.parametrize("spoil", [Path.unlink, lambda program: program.chmod(0o644)], ids=["gone", "no program"])
async def test_where_the_git_in_use_is_gone_the_next_one_in_path_is_taken(
    tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    first = tmp_path / "bin" / "git"
    first.parent.mkdir()
    first.write_text(f'#!/bin/sh\necho first >> {tmp_path / "asked"}\nexec {shutil.which("git")} "$@"\n', "utf-8")
    first.chmod(0o755)
    path = f"{first.parent}{os.pathsep}{os.environ['PATH']}"
    repository = make_repository(tmp_path / "repo", {"a.txt": "a\n"})
    found = await find_repository(repository.path, {"PATH": path, "HOME": str(tmp_path)})
    asked = (tmp_path / "asked").read_bytes()
    spoil(first)
    assert (await run_git(found, ["rev-parse", "HEAD"])).stdout.decode().strip() == repository.head
    assert (tmp_path / "asked").read_bytes() == asked
