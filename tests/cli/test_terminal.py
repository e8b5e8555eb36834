"""What a person sees and types on a terminal, on a real pseudo-terminal."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

from tests.cli.conftest import PATIENCE_S, Program
from tests.support.model_answers import Answer
from tests.support.model_server import ModelServer
from tests.support.repositories import RealRepository


class Terminal:
    """The program on a terminal of 100 columns."""

    def __init__(self, process: subprocess.Popen[bytes], ours: int) -> None:
        self.process = process
        self._ours = ours
        self._raw = b""

    @property
    def text(self) -> str:
        """What was written so far, without control sequences."""
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self._raw.decode("utf-8", "replace"))

    def type(self, line: str) -> None:
        os.write(self._ours, line.encode() + b"\n")

    def until(self, word: str, times: int = 1) -> None:
        """Read until a word was seen so often."""
        end = time.monotonic() + PATIENCE_S
        while self.text.count(word) < times:
            assert time.monotonic() < end, self.text
            self._read(0.2)

    def ended(self) -> int:
        while self.process.poll() is None or self._read(0.1):
            self._read(0.1)
        return self.process.returncode

    def _read(self, wait_s: float) -> bool:
        if not select.select([self._ours], [], [], wait_s)[0]:
            return False
        with contextlib.suppress(OSError):
            piece = os.read(self._ours, 65_536)
            self._raw += piece
            return bool(piece)
        return False


@contextlib.contextmanager
def terminal(program: Program, *arguments: str, cwd: Path) -> Iterator[Terminal]:
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "outpost_lsp", *arguments],
        cwd=cwd,
        env=program.environment | {"TERM": "xterm-256color"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    try:
        yield Terminal(process, ours)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        os.close(ours)


def test_a_live_tree_shows_agents_and_findings_and_the_report_follows(
    program: Program, project: RealRepository
) -> None:
    with terminal(program, "review", "--agent", "coordinator", cwd=project.path) as screen:
        assert screen.ended() == 1
        text = screen.text.replace("\r\n", "\n")
    assert "└── coordinator" in text
    assert "reviewer  step" in text
    assert "1 finding" in text
    assert text.rstrip().endswith("1 finding: 1 error")
    assert text.count("shop/orders.py:2:5: error") == 1


def test_a_line_that_is_typed_meanwhile_is_an_instruction_to_the_agent(
    program: Program, project: RealRepository
) -> None:
    call = {"name": "list_files", "input": {}}
    with ModelServer([Answer(calls=[call], delay_s=1.0), "Done."]) as server:
        program.use_model(server.base_url)
        with terminal(program, "run", "reviewer", "look around", cwd=project.path) as screen:
            server.wait_for(lambda: len(server.requests) == 1)
            screen.type("Look at the README too.")
            assert screen.ended() == 0
            assert "instruction injected" in screen.text or "Done." in screen.text
        assert "Look at the README too." in server.requests[1].body.decode()


def test_ctrl_c_on_the_terminal_cancels_and_leaves_it_usable(program: Program, project: RealRepository) -> None:
    with ModelServer([Answer(text="never ends", hang_after=1)]) as server:
        program.use_model(server.base_url)
        with terminal(program, "review", cwd=project.path) as screen:
            server.wait_for(lambda: len(server.requests) == 1)
            os.killpg(screen.process.pid, 2)
            assert screen.ended() == 130
            assert "cancelled" in screen.text
            assert "Traceback" not in screen.text
        server.wait_for(lambda: server.open_connections == 0)


ASKING = """
[agents.helper]
model = "main"
tools = ["files", "edit"]
permissions = { rules = [{ effect = "ask", tools = ["write_file"], reason = "it writes" }] }
"""


def write(path: str, id: str) -> dict[str, object]:
    return {"name": "write_file", "input": {"path": path, "content": f"content of {path}\n"}, "id": id}


def test_PERM_10_a_person_at_the_terminal_is_asked_and_only_a_clear_yes_lets_the_call_run(
    program: Program, project: RealRepository
) -> None:
    calls = [write(f"{number}.txt", f"call_{number}") for number in range(3)]
    with ModelServer([Answer(calls=calls), "Done."]) as server:
        program.use_model(server.base_url, more=ASKING)
        with terminal(program, "run", "helper", "write them", cwd=project.path) as screen:
            screen.until("helper wants to use write_file")
            # The arguments are shown, and what is no answer is asked again.
            assert "content of 0.txt" in screen.text
            screen.type("maybe")
            screen.until("content of 0.txt", times=2)
            screen.type("y")
            screen.until("content of 1.txt")
            screen.type("")
            screen.until("content of 2.txt")
            screen.type("n")
            assert screen.ended() == 0
        results = [message["content"] for message in server.requests[1].json["messages"] if message["role"] == "tool"]
    assert [result.startswith("Denied: ") for result in results] == [False, True, True]


def test_PERM_10_a_yes_for_the_run_covers_the_same_call_and_no_other(program: Program, project: RealRepository) -> None:
    calls = [write("a.txt", "call_a"), write("a.txt", "call_b"), write("b.txt", "call_c")]
    with ModelServer([Answer(calls=calls), "Done."]) as server:
        program.use_model(server.base_url, more=ASKING)
        with terminal(program, "run", "helper", "write them", "--quiet", cwd=project.path) as screen:
            screen.until("helper wants to use write_file")
            screen.type("r")
            screen.until("content of b.txt")
            screen.type("no")
            assert screen.ended() == 0
            assert screen.text.count("wants to use") == 2
        results = [message["content"] for message in server.requests[1].json["messages"] if message["role"] == "tool"]
    assert [result.startswith("Denied: ") for result in results] == [False, False, True]


def test_PERM_10_a_question_ends_with_its_run(program: Program, project: RealRepository) -> None:
    with ModelServer([Answer(calls=[write("a.txt", "call_a")])]) as server:
        program.use_model(server.base_url, more=ASKING)
        with terminal(program, "run", "helper", "write it", cwd=project.path) as screen:
            screen.until("allow it?")
            os.killpg(screen.process.pid, 2)
            assert screen.ended() == 130
            assert "Traceback" not in screen.text
