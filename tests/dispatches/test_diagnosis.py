"""Looking into an open sandbox (DOC rules), and handing a terminal over to what runs there."""

from __future__ import annotations

import asyncio
import os
import pty
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from outpost_lsp import (
    Agent,
    CliAgent,
    FallbackAgent,
    Harness,
    McpServer,
    OutpostError,
    Sandbox,
    Subagent,
    open_sandbox,
)
from outpost_lsp.dispatches.sandboxing import WorktreeSandboxProvider
from outpost_lsp.domain.sandbox import Command
from tests.harness.stage import Stage, agent, calls, provider, says


@asynccontextmanager
async def opened(stage: Stage, subject: Any = None, **environment: str) -> AsyncIterator[Sandbox]:
    place = WorktreeSandboxProvider(layout=stage.layout, environment={"PATH": os.environ["PATH"], **environment})
    async with open_sandbox(stage.repository, agent=subject, sandbox_provider=place) as sandbox:
        yield sandbox


def program(folder: Path, name: str, text: str) -> str:
    """A program of a folder of its own; the PATH that finds it first."""
    folder.mkdir(exist_ok=True)
    file = folder / name
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


async def test_DOC_01_probes_run_in_the_sandbox_and_no_model_is_asked(stage: Stage) -> None:
    model = provider(says("never"))
    async with opened(stage, Agent("m", Harness(model))) as sandbox:
        found = await sandbox.diagnose(transfers=True)
        assert model.requests == []
        states = {check.name: check.status for check in found.checks}
        assert (states.pop("authentication"), states.pop("model access")) == ("skipped", "skipped")
        assert set(states.values()) == {"pass"}, found
        assert not found.has_failures
        clean = await sandbox.command(Command(executable="git", arguments=("status", "--porcelain", "--ignored")))
        assert clean.stdout == ""


async def test_DOC_02_programs_a_known_command_the_home_and_transfers_are_looked_at(
    stage: Stage, tmp_path: Path
) -> None:
    path = program(tmp_path / "bin", "tool", 'echo "tool 4.2"')
    helper = Agent("m", Harness(provider(), mcp_servers={"docs": McpServer("docs-server")}))
    subject = Agent("m", Harness(provider(), tools=[Subagent("help", "Helps.", helper)]))
    outside = FallbackAgent([subject, CliAgent(["some-agent", "--acp"])], ["quota"])
    async with opened(stage, outside, PATH=path) as sandbox:
        found = {check.name: check for check in (await sandbox.diagnose(programs=("tool",), transfers=True)).checks}
        assert found["program tool"].message == "tool 4.2"
        assert (found["program docs-server"].status, found["program some-agent"].status) == ("fail", "fail")
        assert found["home"].message.startswith(str(stage.layout.cache))
        assert [found[name].status for name in ("commands", "home", "transfers")] == ["pass"] * 3
        assert "transfers" not in {check.name for check in (await sandbox.diagnose()).checks}


@pytest.mark.parametrize(
    ("shell", "failed"),
    [
        ("exit 7", "commands"),
        ("printf 'to stdout'; printf 'to stderr'; exit 7", "commands"),
        ("printf 'to stdout'; printf 'to stderr' >&2; exit 0", "commands"),
        ("exit 1", "home"),
    ],
)
async def test_DOC_02_a_sandbox_that_mixes_up_what_commands_say_is_found_out(
    stage: Stage, tmp_path: Path, shell: str, failed: str
) -> None:
    async with opened(stage, PATH=program(tmp_path / "bin", "sh", shell)) as sandbox:
        found = await sandbox.diagnose()
        [check] = [check for check in found.checks if check.name == failed]
        assert check.status == "fail"
        assert check.remedy
        assert found.has_failures


async def test_DOC_03_a_probe_that_raises_or_takes_too_long_is_a_failed_check(stage: Stage, tmp_path: Path) -> None:
    path = program(tmp_path / "bin", "slow", "sleep 600")
    program(tmp_path / "bin", "silent", "exit 0")
    program(tmp_path / "bin", "broken", "exit 3")
    programs = ("silent", "broken", "absent")
    async with opened(stage, PATH=path) as sandbox:
        found = await sandbox.diagnose(programs=programs, deadline_s=60)
        states = {check.name: check for check in found.checks}
        assert [states[f"program {name}"].status for name in programs] == ["warn", "fail", "fail"]
        assert "Install absent" in states["program absent"].remedy
        states = {check.name: check for check in (await sandbox.diagnose(programs=("slow",), deadline_s=1)).checks}
        assert states["program slow"].status == "fail"
        assert "within 1 s" in states["program slow"].message
        for wrong in (0, -1, 60.1, True, "10"):
            with pytest.raises(OutpostError, match="deadline_s") as caught:
                await sandbox.diagnose(deadline_s=wrong)  # type: ignore[arg-type]
            assert caught.value.code == "configuration"


async def test_SBX_02_looking_and_attaching_are_refused_while_something_runs(stage: Stage) -> None:
    async with opened(stage, agent(calls(("absent", {})), says("done"))) as sandbox:
        running = asyncio.ensure_future(sandbox.command(Command(executable="sleep", arguments=("600",))))
        await asyncio.sleep(0)
        for attempt in (sandbox.diagnose(), sandbox.attach()):
            with pytest.raises(OutpostError, match="busy"):
                await attempt
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_FALL_08_nobody_is_attached_to_a_fallback_agent_nor_without_a_terminal(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(stage, FallbackAgent([agent(), agent()], ["quota"])) as sandbox:
        with pytest.raises(OutpostError, match="fallback") as caught:
            await sandbox.attach()
        assert caught.value.code == "configuration"
    monkeypatch.setattr(os, "isatty", lambda _descriptor: False)
    async with opened(stage) as sandbox:
        with pytest.raises(OutpostError, match="no terminal") as caught:
            await sandbox.attach(Command(executable="true"))
        assert caught.value.code == "configuration"


_ATTACHED = """
import asyncio, os, sys
from pathlib import Path
from outpost_lsp import Command, Layout, WorktreeSandboxProvider, open_sandbox

async def main():
    layout = Layout(Path(sys.argv[2]) / "state", Path(sys.argv[2]) / "cache")
    place = WorktreeSandboxProvider(layout=layout, environment={"PATH": os.environ["PATH"]})
    async with open_sandbox(sys.argv[1], sandbox_provider=place) as sandbox:
        said = 'test -t 0 && test -t 1 && test -f readme.md && echo "secret: [$SECRET]"; read word; echo "said: $word"; exit 5'
        print("status", await sandbox.attach(Command(executable="sh", arguments=("-c", said))))
        # An interrupt that is typed is the program's alone.
        print("status", await sandbox.attach(Command(executable="sh", arguments=("-c", "echo waiting; exec sleep 600"))))
        waiting = asyncio.ensure_future(sandbox.attach(Command(executable="sleep", arguments=("600",))))
        await asyncio.sleep(0.1)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        print("again", os.tcgetpgrp(0) == os.getpgrp(), await sandbox.attach(Command(executable="true")))

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="terminals of this kind are Unix's")
@pytest.mark.parametrize("inherited", [signal.SIG_DFL, signal.SIG_IGN], ids=["from a shell", "from the background"])
def test_a_program_in_the_sandbox_has_the_terminal_until_it_ends(
    stage: Stage, tmp_path: Path, inherited: signal.Handlers
) -> None:
    child, terminal = pty.fork()
    if child == 0:
        signal.signal(signal.SIGINT, inherited)
        arguments = [sys.executable, "-c", _ATTACHED, str(stage.repository), str(tmp_path / "place")]
        os.execve(sys.executable, arguments, {"PATH": os.environ["PATH"], "SECRET": "of the host"})
    said = b""
    answers = {b"secret: []": b"hello\n", b"waiting": b"\x03"}
    try:
        while data := _read(terminal):
            said += data
            for cue in [cue for cue in answers if cue in said]:
                os.write(terminal, answers.pop(cue))
    finally:
        _, status = os.waitpid(child, 0)
        os.close(terminal)
    text = said.decode().replace("\r\n", "\n")
    assert os.waitstatus_to_exitcode(status) == 0, text
    assert "said: hello\nstatus 5\n" in text
    assert "status 130\nagain True 0\n" in text


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:  # The last one who had it open has gone.
        return b""
