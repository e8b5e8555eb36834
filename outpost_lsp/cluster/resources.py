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
_IMPORTED: Final = (
    "outpost_lsp.cluster.job",
    "outpost_lsp.cluster.keeping",
    "anyio._backends._asyncio",
    "httpx",
    "httpcore",
    "ray._private.grpc_utils",
    "ray.core.generated.node_manager_pb2_grpc",
)
WARM: Final = {"RAY_enable_worker_prestart": "1", "RAY_preload_python_modules": ",".join(_IMPORTED)}
"""Has Ray keep processes of a node ready, with what a run needs imported (`spares.py`)."""
