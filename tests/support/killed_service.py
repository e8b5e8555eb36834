"""A service that is killed: `python -m tests.support.killed_service BASE REPOSITORY MODEL_URL`.

Each line of its input begins a life in a process of its own: `calls 17` ends it by SIGKILL at its 17th call that changes
a file, `seconds 0.25` after that time, `whole` never. A life opens the workspace, lets an agent edit, applies what it did,
lets it edit again and discards that. What it says on its output was acknowledged to a person, so that it must not be lost;
the last line of a life is `dead` or `whole`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import outpost_lsp.harness.loop
import outpost_lsp.models.openai_chat
from outpost_lsp.domain.landing import FileOperation
from outpost_lsp.sandbox.landing import land
from outpost_lsp.sandbox.standing import present_on_disk
from outpost_lsp.service import results
from outpost_lsp.service.outpost import Outpost
from outpost_lsp.storage.layout import Layout

CHANGING = ("rename", "replace", "link", "unlink", "rmdir", "mkdir", "write", "fsync", "open", "chmod")


def settings(url: str) -> dict[str, Any]:
    return {
        "defaultModel": "main",
        "providers": {"loopback": {"kind": "openai", "baseUrl": url, "api": "chat", "apiKeyEnv": "", "maxRetries": 0}},
        "models": {"main": {"provider": "loopback", "name": "small"}},
        "agents": {"worker": {"tools": ["files", "edit"]}},
    }


def say(text: str) -> None:
    print(text, flush=True)


async def life(base: Path, repository: Path, url: str) -> None:
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], "OUTPOST_CONFIG": os.devnull}
    async with Outpost(Layout(base / "state", base / "cache"), environment) as outpost:
        workspace = outpost.add_workspace(repository, client_settings=settings(url), trusted=True)
        started = time.monotonic()
        await workspace.ready()
        say(f"ready {time.monotonic() - started:.3f}")
        await workspace.cleared()
        say(f"cleared {time.monotonic() - started:.3f}")

        async def write(operations: Sequence[FileOperation]) -> bool:
            await land(workspace.top, operations, records=workspace.layout.landings)
            return True

        for then in ("applied", "discarded"):
            handle = await outpost.run_agent(workspace, "worker", "work")
            say(f"run {handle.run.id}")
            run = await handle.wait()
            say(f"ended {run.id} {run.status} {run.disposition}")
            if then == "applied":
                outcome = await results.apply(
                    workspace, run, present=lambda path: present_on_disk(workspace.top, path), land=write
                )
                assert outcome.applied, outcome
            else:
                await results.discard(workspace, run)
            say(f"{then} {run.id}")


def die_at(number: int) -> None:
    counter = itertools.count()

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            if next(counter) == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*arguments, **named)

        return call

    for name in CHANGING:
        setattr(os, name, counted(getattr(os, name)))


def main() -> None:
    base, repository, url = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    assert outpost_lsp.harness.loop
    assert outpost_lsp.models.openai_chat
    for line in sys.stdin:
        kind, _, value = line.strip().partition(" ")
        process = os.fork()
        if process == 0:
            with contextlib.suppress(BrokenPipeError):
                if kind == "calls":
                    die_at(int(value))
                elif kind == "seconds":
                    signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
                    signal.setitimer(signal.ITIMER_REAL, float(value))
                asyncio.run(life(base, repository, url))
            os._exit(0)
        _, status = os.waitpid(process, 0)
        say("dead" if os.WIFSIGNALED(status) else f"whole {os.waitstatus_to_exitcode(status)}")


if __name__ == "__main__":
    main()
