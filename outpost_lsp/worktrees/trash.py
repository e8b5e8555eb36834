"""Where folders of the product go that nobody needs any more: out of view at once, deleted when there is time.

The invariant: nobody waits for a large tree to be deleted, and what a process did not get to is deleted by a later one.
"""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Final
from uuid import uuid4

TRASH: Final = ".trash"
"""Inside the folder of worktrees, so that moving there is a rename."""


def discard(folder: Path) -> None:
    """Rename a folder of the product's out of view and delete it in a worker; nothing happens when it is gone.

    Nobody waits for a large tree to go; what a process that ends leaves in the trash, the next start sweeps.
    """
    trash = folder.parent / TRASH
    place = trash / f"{folder.name}-{uuid4().hex}"
    try:
        trash.mkdir(mode=0o700, exist_ok=True)
        folder.rename(place)
    except FileNotFoundError:
        return
    threading.Thread(target=shutil.rmtree, args=(place, True), name="outpost-trash", daemon=True).start()


def sweep(trash: Path) -> None:
    """Delete what earlier processes left in a trash."""
    if trash.is_symlink():
        return
    for place in trash.glob("*"):
        shutil.rmtree(place, ignore_errors=True)
