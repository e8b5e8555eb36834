"""What a server follows by itself, for as long as a workspace is open: other processes' findings and dismissals, and files
written outside the editor, which not every client tells of. Started by the workspace when it opens.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from outpost_lsp.errors import OutpostError
from outpost_lsp.service.cleaning import leftovers, remove

if TYPE_CHECKING:
    from outpost_lsp.service.workspace import Workspace

logger = logging.getLogger(__name__)

_WATCH_S = 10.0
_DISMISSALS_S = 2.0
"""Somebody waits for what was dismissed elsewhere, and for the end of a date; to look for both is a matter of three files."""
_AT_ONCE = 100
"""So many files are looked at before others have their turn."""


async def watch(workspace: Workspace) -> None:
    """Look at them until it is cancelled, and forget once what nobody needs any more."""
    tidied = False
    due = time.monotonic() + _WATCH_S
    while True:
        await asyncio.sleep(min(_DISMISSALS_S, _WATCH_S))
        board = workspace.board
        try:
            if time.monotonic() < due:
                board.follow_dismissed()
                continue
            due = time.monotonic() + _WATCH_S
            board.catch_up()
            for number, path in enumerate(board.paths()):
                if number % _AT_ONCE == 0:
                    await asyncio.sleep(0)
                board.changed_on_disk(path)
            if not tidied:
                # Not at once: a command on the terminal is over before, and leaves tidying to whoever stays.
                tidied = True
                await remove(workspace, await leftovers(workspace))
        except (OutpostError, OSError) as error:
            logger.warning("%s: %s", workspace.folder, error)
