"""One command's life: the service opened for a folder, a run followed to its end, and everything stopped on Ctrl-C.

The terminal's face uses the service exactly as the editor's does, and sees the same runs. An interrupt cancels the run,
waits for its clean-up, and only then ends the process.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal as signals
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar

import anyio

from outpost_lsp.cli.folders import workspace_folder
from outpost_lsp.cli.progress import PlainProgress
from outpost_lsp.cli.questions import TerminalQuestions
from outpost_lsp.cli.status import TerminatedError
from outpost_lsp.cli.terminal import is_interactive
from outpost_lsp.config.environment import default_layout
from outpost_lsp.config.faults import ConfigurationFault
from outpost_lsp.config.masking import KeyFilter
from outpost_lsp.config.overrides import settings_from_assignments
from outpost_lsp.domain.markdown import one_line
from outpost_lsp.errors import OutpostError, configuration
from outpost_lsp.sandbox.process import forbid_inspection
from outpost_lsp.service.handle import RunHandle
from outpost_lsp.service.outpost import Outpost
from outpost_lsp.service.signals import Notice, Signal
from outpost_lsp.service.workspace import Workspace

Result = TypeVar("Result")
_CLEARING_S: Final = 10.0


def run_async(work: Callable[[], Awaitable[Result]]) -> Result:
    """Run a command's coroutine; Ctrl-C raises `KeyboardInterrupt` and SIGTERM `TerminatedError` after the clean-up."""
    return asyncio.run(_until_terminated(work))


async def _until_terminated(work: Callable[[], Awaitable[Result]]) -> Result:
    task = asyncio.ensure_future(work())
    terminated = False

    def terminate() -> None:
        nonlocal terminated
        terminated = True
        task.cancel()

    asyncio.get_running_loop().add_signal_handler(signals.SIGTERM, terminate)
    try:
        return await task
    except asyncio.CancelledError:
        if not task.done():
            # Ctrl-C cancelled us: hand it on and wait for the clean-up.
            task.cancel()
            await asyncio.wait({task})
        if terminated:
            raise TerminatedError from None
        raise


@asynccontextmanager
async def opened(
    options: argparse.Namespace, *, starts_runs: bool = False, is_examined: bool = False
) -> AsyncIterator[tuple[Outpost, Workspace]]:
    """The service with the workspace that a command works in: the repository around the folder, else the folder.

    A command that starts runs is refused when what the person said is wrong: a model would be passed over silently. One
    that examines the workspace gets it as it is, whether it can be used or not.
    """
    layout = default_layout(os.environ)
    client = settings_from_assignments(said(options))
    if starts_runs:
        # An agent's programs are children of this process, whose environment may hold keys (SEC-13).
        forbid_inspection()
    outpost = Outpost(layout, os.environ, offline=getattr(options, "offline", False))
    async with outpost:
        unsubscribe = outpost.subscribe(_tell_notices)
        workspace = outpost.add_workspace(workspace_folder(Path(options.folder)), client_settings=client)
        _log_to_standard_error(workspace)
        faults = [_as_said_here(fault) for fault in workspace.loaded.faults]
        for fault in faults:
            print(f"outpost-lsp: {fault}", file=sys.stderr)
        if starts_runs:
            _refuse_wrong_settings(faults)
        if is_examined:
            yield outpost, workspace
            return
        await workspace.ready()
        unsubscribe()
        yield outpost, workspace
        # A command is over soon; a server has all the time to clear away what dead processes left.
        with anyio.move_on_after(_CLEARING_S):
            await workspace.cleared()


def said(options: argparse.Namespace) -> list[str]:
    """The settings that a command line gives, each as ``KEY=VALUE``."""
    given = list(getattr(options, "settings", []))
    if getattr(options, "executor", None) is not None:
        given.append(f"runs.executor={options.executor}")
    return given


def _as_said_here(fault: ConfigurationFault) -> ConfigurationFault:
    """A fault with the name that a terminal has for its place: what an editor sends as settings are options here."""
    return replace(fault, origin=replace(fault.origin, source="--set")) if fault.origin.place == "client" else fault


def _refuse_wrong_settings(faults: Sequence[ConfigurationFault]) -> None:
    """Raise for faults in the user's own file and the options; a folder's own file may be from another version."""
    places = {fault.origin.source for fault in faults if fault.origin.place in ("user", "client")}
    if places:
        raise configuration(f"nothing was started, because settings are wrong: mend {' and '.join(sorted(places))}")


def _log_to_standard_error(workspace: Workspace) -> None:
    """Warnings of the engine are one line each, and no key of a service is in them (SEC-16)."""
    handler = logging.StreamHandler()
    handler.setLevel(logging.WARNING)
    handler.setFormatter(logging.Formatter("outpost-lsp: %(message)s"))
    handler.addFilter(KeyFilter(workspace.services.masks))
    logging.getLogger("outpost_lsp").addHandler(handler)


def _tell_notices(signal: Signal) -> None:
    if isinstance(signal, Notice):
        print(f"outpost-lsp: {one_line(signal.message, 500)}", file=sys.stderr)


async def followed(outpost: Outpost, start: Callable[[], Awaitable[RunHandle]], *, quiet: bool) -> RunHandle:
    """Start a run, show its progress on standard error, and return its handle when it has ended."""
    progress = _progress(quiet=quiet)
    with progress as listener:
        questions = TerminalQuestions(getattr(listener, "show_question", _print_question)) if _has_person() else None
        unsubscribe = [outpost.subscribe(one) for one in (listener, questions) if one is not None]
        try:
            handle = await start()
            with nullcontext() if questions is None else _typed_lines(outpost, handle, questions):
                await handle.wait()
        finally:
            for end in unsubscribe:
                end()
    return handle


def _has_person() -> bool:
    """Whether somebody sits at a terminal, who can be asked and can type."""
    return sys.stdin is not None and sys.stdin.isatty() and is_interactive(sys.stderr)


def _print_question(text: str | None) -> None:
    if text is not None:
        print(f"outpost-lsp: {text}", end="", file=sys.stderr, flush=True)


def _progress(*, quiet: bool) -> Any:
    if quiet:
        return nullcontext(_look_away)
    if is_interactive(sys.stderr):
        # Drawing needs a library that nothing else here does.
        from outpost_lsp.cli.live import LiveProgress

        return LiveProgress(sys.stderr)
    return nullcontext(PlainProgress(sys.stderr))


def _look_away(_signal: Signal) -> None:
    """Nobody wants to see it."""


@contextmanager
def _typed_lines(outpost: Outpost, handle: RunHandle, questions: TerminalQuestions) -> Iterator[None]:
    """Let each line that a person types meanwhile answer what was asked, or be an instruction to the agent."""
    loop = asyncio.get_running_loop()
    deliveries: set[asyncio.Task[None]] = set()

    def read() -> None:
        line = sys.stdin.readline()
        if not line:
            loop.remove_reader(sys.stdin)
            questions.close()
        elif not questions.typed(line) and line.strip():
            delivery = loop.create_task(_steer(outpost, handle.run.id, line.strip()))
            deliveries.add(delivery)
            delivery.add_done_callback(deliveries.discard)

    loop.add_reader(sys.stdin, read)
    try:
        yield
    finally:
        loop.remove_reader(sys.stdin)
        questions.close()
        for delivery in deliveries:
            delivery.cancel()


async def _steer(outpost: Outpost, run_id: str, text: str) -> None:
    try:
        await outpost.steer(run_id, text)
    except OutpostError as error:
        print(f"outpost-lsp: {error.message}", file=sys.stderr)


def read_brief(text: str) -> str:
    """A brief as it was given; `-` means standard input."""
    if text != "-":
        return text
    brief = sys.stdin.read()
    if not brief.strip():
        raise configuration("the brief on standard input is empty")
    return brief
