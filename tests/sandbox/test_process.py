from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import anyio
import pytest

from outpost_lsp.domain.sandbox import CommandResult
from outpost_lsp.errors import OutpostError
from outpost_lsp.sandbox.process import run_process

ENVIRONMENT = {"PATH": os.environ["PATH"]}
MARK = f"1000.{os.getpid()}"
"""A number of seconds to sleep that no other run of these tests uses."""


async def shell(script: str, tmp_path: Path, **options: object) -> CommandResult:
    return await run_process(["sh", "-c", script], cwd=tmp_path, environment=ENVIRONMENT, **options)  # type: ignore[arg-type]


def alive(marker: str) -> list[int]:
    """The living processes that have the marker among their arguments."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if marker.encode() in arguments and int(entry.name) != os.getpid():
            found.append(int(entry.name))
    return found


async def test_CMD_02_an_exit_status_is_a_result_and_the_channels_are_apart(tmp_path: Path) -> None:
    result = await shell("echo out; echo err >&2; exit 7", tmp_path)
    assert result == CommandResult(7, "out\n", "err\n")
    assert (await shell("kill -TERM $$", tmp_path)).status == 128 + signal.SIGTERM


async def test_CMD_02_a_program_that_cannot_start_is_a_fault_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(OutpostError, match="no-such-program cannot be started: No such file") as caught:
        await run_process(["no-such-program"], cwd=tmp_path, environment=ENVIRONMENT)
    assert caught.value.code == "process"
    with pytest.raises(OutpostError, match="cannot be started"):
        await run_process(["sh", "a\0b"], cwd=tmp_path, environment=ENVIRONMENT)
    with pytest.raises(OutpostError, match="cannot be started"):
        await run_process(["sh"], cwd=tmp_path / "gone", environment=ENVIRONMENT)


async def test_CMD_03_no_shell_is_involved_and_input_is_closed(tmp_path: Path) -> None:
    result = await run_process(["echo", "$HOME; ls"], cwd=tmp_path, environment=ENVIRONMENT)
    assert result.stdout == "$HOME; ls\n"
    assert (await shell("cat; echo done", tmp_path)).stdout == "done\n"
    assert (await shell("cat", tmp_path, stdin="täxt".encode())).stdout == "täxt"


async def test_CMD_05_input_that_nobody_reads_is_no_fault(tmp_path: Path) -> None:
    assert (await shell("exit 3", tmp_path, stdin=b"x" * 5_000_000)).status == 3


async def test_SEC_13_the_environment_is_exactly_what_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "canary")
    result = await run_process(
        [sys.executable, "-c", "import os; print(sorted(os.environ))"], cwd=tmp_path, environment={"A": "b"}
    )
    assert result.stdout.strip() in {"['A']", "['A', 'LC_CTYPE']"}


async def test_CMD_01_the_tail_is_kept_and_everything_is_observed(tmp_path: Path) -> None:
    seen: dict[str, list[str]] = {"stdout": [], "stderr": []}
    result = await shell(
        "seq 1 50000; echo end >&2", tmp_path, retain=1_000, observe=lambda channel, text: seen[channel].append(text)
    )
    everything = "".join(f"{number}\n" for number in range(1, 50_001))
    assert result.stdout == everything[-1_000:]
    assert result.truncated
    assert "".join(seen["stdout"]) == everything
    assert "".join(seen["stderr"]) == "end\n"
    assert not (await shell("printf %1000s x", tmp_path, retain=1_000)).truncated
    assert (await shell("printf %1001s x", tmp_path, retain=1_000)).truncated
    assert (await shell("echo x", tmp_path, retain=0)).stdout == ""


async def test_CMD_01_a_character_is_never_split(tmp_path: Path) -> None:
    pieces: list[str] = []
    script = "import sys, time\nfor byte in 'aé🌍\\n'.encode():\n  sys.stdout.buffer.write(bytes([byte]))\n  sys.stdout.flush()\n"
    result = await run_process(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        environment=ENVIRONMENT,
        observe=lambda _, text: pieces.append(text),
    )
    assert result.stdout == "".join(pieces) == "aé🌍\n"
    assert (await shell("printf 'a\\377b\\303'", tmp_path)).stdout == "a\ufffdb\ufffd"


async def test_CMD_05_an_observer_that_raises_stops_the_command_and_is_raised(tmp_path: Path) -> None:
    def observe(channel: str, text: str) -> None:
        raise ZeroDivisionError(text)

    with pytest.raises(ZeroDivisionError, match="first"):
        await shell(f"echo first; exec sleep {MARK}", tmp_path, observe=observe)
    assert alive(MARK) == []
    with pytest.raises(ZeroDivisionError, match="last"):
        await shell("printf last", tmp_path, observe=observe)


async def test_SEC_14_a_deadline_ends_the_whole_group_and_waits_for_no_pipe(tmp_path: Path) -> None:
    start = time.monotonic()
    with pytest.raises(OutpostError, match="took longer than 1 s") as caught:
        await shell(f"sleep {MARK} & sleep {MARK}", tmp_path, deadline_s=1)
    assert caught.value.code == "timeout"
    assert time.monotonic() - start < 30
    assert alive(MARK) == []


async def test_SEC_14_a_background_process_that_holds_the_pipe_does_not_hold_the_call(tmp_path: Path) -> None:
    result = await shell(f"sleep {MARK} & echo started", tmp_path, deadline_s=100)
    assert result == CommandResult(0, "started\n", "")
    assert alive(MARK) == []


async def test_CMD_04_a_process_that_ignores_the_polite_signal_is_killed(tmp_path: Path) -> None:
    with pytest.raises(OutpostError, match="took longer"):
        await shell(f"trap '' TERM; sleep {MARK} & while true; do sleep {MARK}; done", tmp_path, deadline_s=0.5)
    assert alive(MARK) == []


async def test_CMD_04_a_process_is_given_time_to_clean_up(tmp_path: Path) -> None:
    with pytest.raises(OutpostError, match="took longer"):
        await shell("trap 'echo bye > bye; exit' TERM; while true; do sleep 0.01; done", tmp_path, deadline_s=0.5)
    assert (tmp_path / "bye").read_text() == "bye\n"


async def test_CMD_04_a_cancelled_call_returns_when_the_process_is_gone(tmp_path: Path) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(shell, f"echo > started; sleep {MARK} & sleep {MARK}", tmp_path)
        with anyio.fail_after(60):
            while not (tmp_path / "started").exists():
                await anyio.sleep(0.01)
        tasks.cancel_scope.cancel()
    assert alive(MARK) == []


async def test_CMD_06_a_grandchild_that_left_the_group_is_found_by_its_session(tmp_path: Path) -> None:
    script = (
        "import os, sys, time\n"
        "if os.fork() == 0:\n"
        "    os.setpgid(0, 0)\n"
        "    open('left', 'w').close()\n"
        f"    time.sleep({MARK})\n"
        "while not os.path.exists('left'):\n"
        "    time.sleep(0.01)\n"
    )
    result = await run_process([sys.executable, "-c", script], cwd=tmp_path, environment=ENVIRONMENT)
    assert result.status == 0
    assert alive(MARK) == []


async def test_CMD_06_a_child_dies_with_its_killed_parent(tmp_path: Path) -> None:
    program = (
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from outpost_lsp.sandbox.process import run_process\n"
        f"asyncio.run(run_process(['sleep', '{MARK}'], cwd=Path('.'), environment={{'PATH': '/usr/bin:/bin'}}))\n"
    )
    async with await anyio.open_process([sys.executable, "-c", program], cwd=Path(__file__).parents[2]) as process:
        with anyio.fail_after(60):
            while not [pid for pid in alive(MARK) if pid != process.pid]:
                await anyio.sleep(0.01)
            process.kill()
            await process.wait()
            while alive(MARK):
                await anyio.sleep(0.01)


async def test_many_commands_at_once_leave_no_descriptor_open(tmp_path: Path) -> None:
    await shell("true", tmp_path)
    before = len(list(Path("/proc/self/fd").iterdir()))
    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(shell, "echo x", tmp_path)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
