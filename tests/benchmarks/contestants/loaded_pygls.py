"""pygls as it comes, with tasks that work on its loop: `loaded_pygls.py TASKS MS`; each works MS and sleeps as long."""

from __future__ import annotations

import asyncio
import sys
import time

from lsprotocol import types
from pygls.lsp.server import LanguageServer

server = LanguageServer("loaded", "1")


@server.feature(types.TEXT_DOCUMENT_HOVER)
def hover(_params: types.HoverParams) -> types.Hover:
    return types.Hover(types.MarkupContent(types.MarkupKind.Markdown, "hover"))


@server.command("nothing")
def nothing(*_arguments: object) -> dict[str, object]:
    return {}


async def _work(slice_s: float) -> None:
    while True:
        end = time.perf_counter() + slice_s
        while time.perf_counter() < end:
            pass
        await asyncio.sleep(slice_s)


_tasks: list[asyncio.Task[None]] = []


@server.feature(types.INITIALIZED)
def begin(_params: types.InitializedParams) -> None:
    count, slice_ms = int(sys.argv[1]), float(sys.argv[2])
    _tasks.extend(asyncio.get_running_loop().create_task(_work(slice_ms / 1000)) for _ in range(count))


if __name__ == "__main__":
    server.start_io()
