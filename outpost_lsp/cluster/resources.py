"""How things are called in a cluster: resources of its nodes, which jobs and faces are placed by, and its actors."""

from __future__ import annotations

from typing import Final

SLOT: Final = "outpost_slot"
"""A place for a run."""
SHELL: Final = "outpost_shell"
"""A place for a run that needs confined commands; it takes a slot besides."""
FACE: Final = "outpost_face"
"""What faces are pinned to: a node that carries runs, and freezes, must not freeze one."""
NAMESPACE: Final = "outpost"
"""Of the actors."""
KEEPER: Final = "keeper"
"""The actor that keeps what detached runs left."""
FOLDER_VARIABLE: Final = "OUTPOST_WORKER_DIR"
BASES_VARIABLE: Final = "OUTPOST_WORKER_BASE_BYTES"
CONFIGURATION_VARIABLE: Final = "OUTPOST_CONFIG"
