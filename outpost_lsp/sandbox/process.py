"""Running a program: own session, deadline, kept tail of its output, and nothing of it left afterwards.

The invariant: when a call returns or raises, the program and everything that stayed in its session is gone, and no pipe
that a grandchild holds open was waited for (CMD-01 to CMD-06, SEC-14). The environment is exactly what the caller
gives. The only place in the product that starts programs other than git; called by leases, and through them by tools, and by
`live_process.py` for programs that one talks to.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import ctypes
import os
import signal
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Final

import anyio
from anyio import to_thread

from outpost_lsp.domain.sandbox import Channel, CommandResult
from outpost_lsp.errors import OutpostError

Observe = Callable[[Channel, str], None]

_GRACE_S: Final = 0.5
_POLL_S: Final = 0.02
_LAST_WORDS_S: Final = 0.1
_PIECE: Final = 65_536
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_DUMPABLE: Final = 4


async def run_process(
    arguments: Sequence[str],
    *,
    cwd: Path,
    environment: Mapping[str, str],
    stdin: bytes | None = None,
    deadline_s: float = 600.0,
    retain: int = 65_536,
    observe: Observe | None = None,
) -> CommandResult:
    """Run a program to its end; a non-zero status is a result, `128 + n` when signal n ended it.

    Each channel keeps its last `retain` characters and `observe` sees all of them, in pieces that split no character;
    what it raises ends the program and is raised here. `timeout` after `deadline_s`; `process` when it cannot start.
    """
    channels: dict[Channel, CapturedChannel] = {
        name: CapturedChannel(name, retain, observe) for name in ("stdout", "stderr")
    }
    process = await _start(arguments, cwd, environment, channels, stdin)
    try:
        with anyio.fail_after(deadline_s):
            async with anyio.create_task_group() as tasks:
                for channel in channels.values():
                    tasks.start_soon(channel.cancel_when_observe_raises, tasks.cancel_scope)
                await process.wait()
                # What the program wrote before it ended is in the pipes already; a grandchild may hold them for ever.
                with anyio.move_on_after(_LAST_WORDS_S):
                    for channel in channels.values():
                        await channel.ended.wait()
                tasks.cancel_scope.cancel()
    except TimeoutError as error:
        details = {"limit": "deadlineS", "deadlineS": deadline_s}
        message = f"{arguments[0]} took longer than {deadline_s:g} s and was ended."
        raise OutpostError("timeout", message, details) from error
    finally:
        with anyio.CancelScope(shield=True):
            await end_program(process)
            for channel in channels.values():
                channel.close()
    for channel in channels.values():
        if channel.error is not None:
            raise channel.error
    status = process.returncode or 0
    out, err = channels["stdout"], channels["stderr"]
    return CommandResult(status if status >= 0 else 128 - status, out.text, err.text, out.truncated or err.truncated)


def forbid_inspection() -> bool:
    """Keep other processes of the same user, children included, from reading this one's memory and environment (SEC-13).

    Whether the system took it. Called once by a server, before it starts anything.
    """
    if sys.platform != "linux":
        return False
    return bool(ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) == 0)


class CapturedChannel:
    """One output of a program: a pipe of our own, read by the event loop, of which the tail is kept."""

    def __init__(self, name: Channel, retain: int, observe: Observe | None) -> None:
        self.truncated = False
        self.ended = asyncio.Event()
        self._name = name
        self._retain = retain
        self._observe = observe
        self.error: Exception | None = None
        self._failed = asyncio.Event()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._pieces: deque[str] = deque()
        self._length = 0
        self._reading, self.writing = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._reading, False)
        asyncio.get_running_loop().add_reader(self._reading, self._read)

    @property
    def text(self) -> str:
        whole = "".join(self._pieces)
        return whole[-self._retain :] if self._retain else ""

    async def cancel_when_observe_raises(self, scope: anyio.CancelScope) -> None:
        await self._failed.wait()
        scope.cancel()

    def close(self) -> None:
        """Stop reading: what is in the pipe now is taken, what comes later has no reader."""
        if self._reading < 0:
            return
        for _ in range(1_024):
            if self.ended.is_set() or not self._read():
                break
        asyncio.get_running_loop().remove_reader(self._reading)
        os.close(self._reading)
        self._reading = -1
        self._take(self._decoder.decode(b"", final=True))

    def _read(self) -> bool:
        try:
            data = os.read(self._reading, _PIECE)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self._reading)
            self.ended.set()
            return False
        self._take(self._decoder.decode(data))
        return True

    def _take(self, text: str) -> None:
        if not text:
            return
        self._pieces.append(text)
        self._length += len(text)
        while self._length - len(self._pieces[0]) >= self._retain:
            self._length -= len(self._pieces.popleft())
            self.truncated = True
            if not self._pieces:
                break
        self.truncated = self.truncated or self._length > self._retain
        if self._observe is None or self.error is not None:
            return
        try:
            self._observe(self._name, text)
        except Exception as error:  # noqa: BLE001 - whatever it raises is raised by the call (CMD-05)
            self.error = error
            self._failed.set()


async def _start(
    arguments: Sequence[str],
    cwd: Path,
    environment: Mapping[str, str],
    channels: Mapping[Channel, CapturedChannel],
    stdin: bytes | None,
) -> asyncio.subprocess.Process:
    given = None if stdin is None else _readable(stdin)
    try:
        return await start_program(
            arguments,
            cwd=cwd,
            environment=environment,
            stdin=asyncio.subprocess.DEVNULL if given is None else given.fileno(),
            stdout=channels["stdout"].writing,
            stderr=channels["stderr"].writing,
        )
    except BaseException:
        for channel in channels.values():
            channel.close()
        raise
    finally:
        for channel in channels.values():
            os.close(channel.writing)
        if given is not None:
            given.close()


async def start_program(
    arguments: Sequence[str],
    *,
    cwd: Path,
    environment: Mapping[str, str],
    stdin: int,
    stdout: int,
    stderr: int,
    on_terminal: bool = False,
) -> asyncio.subprocess.Process:
    """Start a program in a session of its own, with these descriptors, which stay the caller's to close.

    With `on_terminal` it stays in this session, as the group that the terminal `stdin` listens to. `process` when it
    cannot start. Cancelled half-way, what was started is ended first.
    """
    try:
        starting = asyncio.ensure_future(
            asyncio.create_subprocess_exec(
                *arguments,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                cwd=cwd,
                env=environment,
                start_new_session=not on_terminal,
                process_group=0 if on_terminal else None,
                preexec_fn=_take_terminal(stdin) if on_terminal else _die_with_parent(),
            )
        )
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        # Cancelled half-way the event loop would end the program alone, and not what it has started.
        with anyio.CancelScope(shield=True):
            started = await starting
            if on_terminal:
                kill_program(started)
            await end_program(started)
        raise
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        details = {"executable": arguments[0]}
        raise OutpostError("process", f"{arguments[0]} cannot be started: {reason}.", details) from error


def _readable(data: bytes) -> IO[bytes]:
    """Text for a program's input, as an unnamed file: it need not be fed, and cannot block on a reader that is gone."""
    file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by the caller
    file.write(data)
    file.seek(0)
    return file


def _take_terminal(descriptor: int) -> Callable[[], None]:
    """What makes the child's group the one that the terminal listens to, before the program can say anything.

    As with a shell's foreground job, what is typed to end it ends it, also where this process was started deaf to that:
    by a script in the background, say.
    """
    die = _die_with_parent()

    def take() -> None:
        if die is not None:
            die()
        for typed in (signal.SIGINT, signal.SIGQUIT):
            signal.signal(typed, signal.SIG_DFL)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
        os.tcsetpgrp(descriptor, os.getpid())
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    return take


def _die_with_parent() -> Callable[[], None] | None:
    """What makes the kernel end the child when this process is killed; everything is looked up before the fork."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl
    number = int(signal.SIGKILL)
    parent = os.getpid()

    def ask() -> None:
        prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
        if os.getppid() != parent:
            # It was killed before the kernel was asked, so nobody would end this child.
            os._exit(1)

    return ask


async def end_program(process: asyncio.subprocess.Process, grace_s: float = _GRACE_S) -> None:
    """End what is left of the program's session: TERM, half a second or the grace given, KILL."""
    if process.returncode is not None and not await to_thread.run_sync(_members, process.pid):
        return
    await to_thread.run_sync(_signal, process.pid, signal.SIGTERM)
    with anyio.move_on_after(grace_s):
        await process.wait()
        while await to_thread.run_sync(_members, process.pid):  # noqa: ASYNC110 - no event tells of others' ends
            await anyio.sleep(_POLL_S)
        return
    await to_thread.run_sync(_signal, process.pid, signal.SIGKILL)
    await process.wait()


def kill_program(process: asyncio.subprocess.Process) -> None:
    """End the program's whole session at once, without waiting for it."""
    _signal(process.pid, signal.SIGKILL)


def _signal(session: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(session, number)
    for pid in _members(session):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _members(session: int) -> list[int]:
    """The living processes of a session, in whatever group they are."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_bytes().rpartition(b")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] not in {b"Z", b"X"}:
            found.append(int(entry.name))
    return found
