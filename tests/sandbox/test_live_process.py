"""Programs that one talks to: what is said arrives whole, and nothing of them is left."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from outpost_lsp.domain.sandbox import Command, GitResult, LiveProcess
from outpost_lsp.errors import OutpostError
from outpost_lsp.sandbox.lease import BorrowedLease, HostLease

MIB = 1024 * 1024


async def no_git(*_arguments: object, **_options: object) -> GitResult:
    raise AssertionError("no git is asked here")


@pytest.fixture
async def lease(tmp_path: Path) -> AsyncIterator[HostLease]:
    root = tmp_path / "root"
    root.mkdir()
    environment = {"PATH": os.environ["PATH"]}
    lease = HostLease(root, tmp_path / "home", no_git, environment, variables={"TOKEN": "secret-token"})
    yield lease
    await lease.release()


def python(code: str, **options: object) -> Command:
    return Command(executable=sys.executable, arguments=("-u", "-c", code), **options)  # type: ignore[arg-type]


async def gone(pid: int) -> None:
    with anyio.fail_after(60):
        while alive(pid):
            await anyio.sleep(0.02)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        return False


ECHO = "import sys\nfor line in sys.stdin.buffer: sys.stdout.buffer.write(line); sys.stdout.buffer.flush()"


async def test_lines_come_back_whole_however_long_they_are(lease: HostLease) -> None:
    program = await lease.spawn(python(ECHO))
    sent = [b"one", b"x" * (3 * MIB), b""]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(program.send, b"\n".join(sent) + b"\n")
        with anyio.fail_after(60):
            assert [await program.line(8 * MIB) for _ in sent] == sent
    await program.end()
    assert await program.status(0) == 0


async def test_the_end_of_its_input_is_the_last_thing_a_program_sees(lease: HostLease, tmp_path: Path) -> None:
    said = tmp_path / "said"
    code = f"import sys; sys.stdin.read(); open({str(said)!r}, 'w').write('closed')"
    program = await lease.spawn(python(code))
    await program.end(grace_s=60)
    assert said.read_text() == "closed"
    assert await program.status(0) == 0


async def test_a_line_that_is_too_long_is_refused(lease: HostLease) -> None:
    program = await lease.spawn(python("print('x' * 100_000); import sys; sys.stdin.read()"))
    with pytest.raises(OutpostError) as caught:
        await program.line(50_000)
    assert caught.value.code == "response"
    await program.end()


async def test_SEC_14_a_program_that_ignores_everything_is_gone_with_its_children(lease: HostLease) -> None:
    code = (
        "import os, signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(1000)'])\n"
        "print(os.getpid(), child.pid)\n"
        "time.sleep(1000)"
    )
    program = await lease.spawn(python(code))
    line = await program.line(MIB)
    assert line is not None
    with anyio.fail_after(60):
        await program.end(grace_s=0.1)
    for pid in line.split():
        await gone(int(pid))


async def test_output_ends_with_the_program_although_a_grandchild_holds_the_pipe(lease: HostLease) -> None:
    code = (
        "import subprocess, sys\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(1000)'], start_new_session=True)\n"
        "print('last words')"
    )
    program = await lease.spawn(python(code))
    with anyio.fail_after(60):
        assert await program.line(MIB) == b"last words"
        assert await program.line(MIB) is None
    await program.end()


async def test_a_dead_program_refuses_input_and_tells_its_status_and_last_words(lease: HostLease) -> None:
    program = await lease.spawn(python("import sys; sys.stderr.write('x' * 9000 + 'why'); sys.exit(3)", retain=100))
    assert await program.status(60) == 3
    with pytest.raises(OutpostError) as caught:
        await program.send(b"hello\n")
    assert caught.value.code == "process"
    await program.end()
    assert program.stderr.endswith("why")
    assert len(program.stderr) == 100


async def test_SEC_13_its_environment_is_the_lease_s_and_what_it_was_given(lease: HostLease) -> None:
    os.environ["OUTPOST_TEST_KEY"] = "canary"
    try:
        code = "import json, os; print(json.dumps(dict(os.environ)))"
        program = await lease.spawn(python(code, variables={"GIVEN": "1"}))
        line = await program.line(MIB)
    finally:
        del os.environ["OUTPOST_TEST_KEY"]
    await program.end()
    assert line is not None
    assert b"canary" not in line
    assert b"secret-token" not in line
    assert b'"GIVEN": "1"' in line
    assert lease.variable("TOKEN") == "secret-token"
    assert lease.variable("ABSENT") is None


async def test_a_released_lease_ends_what_was_started(lease: HostLease) -> None:
    program = await lease.spawn(python("import os, time; print(os.getpid()); time.sleep(1000)"))
    line = await program.line(MIB)
    await lease.release()
    await gone(int(line or b"0"))
    with pytest.raises(OutpostError):
        await lease.spawn(python("pass"))


async def test_a_borrowed_lease_takes_its_programs_with_it(lease: HostLease) -> None:
    borrowed = BorrowedLease(lease)
    program: LiveProcess = await borrowed.spawn(python("import os, time; print(os.getpid()); time.sleep(1000)"))
    line = await program.line(MIB)
    borrowed.end()
    await gone(int(line or b"0"))
    await program.end()
    with pytest.raises(OutpostError):
        await borrowed.spawn(python("pass"))


async def test_an_unknown_program_is_a_process_fault(lease: HostLease) -> None:
    with pytest.raises(OutpostError) as caught:
        await lease.spawn(Command(executable="no-such-program-here"))
    assert caught.value.code == "process"


async def test_a_program_that_reads_nothing_holds_up_only_who_writes(lease: HostLease) -> None:
    program = await lease.spawn(python("import time; time.sleep(1000)"))
    refused: list[OutpostError] = []
    async with anyio.create_task_group() as tasks:

        async def write() -> None:
            with pytest.raises(OutpostError) as caught:
                await program.send(b"x" * (4 * MIB))
            refused.append(caught.value)

        tasks.start_soon(write)
        with anyio.fail_after(60):
            while not program._wakes:
                await anyio.sleep(0)
        await program.end(grace_s=0.1)
    assert [fault.code for fault in refused] == ["process"]
