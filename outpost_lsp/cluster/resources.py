"""How places for runs are called in a cluster: resources of its nodes, which jobs and faces are placed by."""

from __future__ import annotations

from typing import Final

SLOT: Final = "outpost_slot"
"""A place for a run."""
SHELL: Final = "outpost_shell"
"""A place for a run that needs confined commands; it takes a slot besides."""
FACE: Final = "outpost_face"
"""What faces are pinned to: a node that carries runs, and freezes, must not freeze one."""
FOLDER_VARIABLE: Final = "OUTPOST_WORKER_DIR"
CONFIGURATION_VARIABLE: Final = "OUTPOST_CONFIG"
