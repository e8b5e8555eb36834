"""Processes of a node that are ready for its next runs, because one that begins when a run comes takes a second or two.

A node starts with as many as it has cores (`WARM` in `resources.py`); Ray gives each to one actor only, so every job has
another one made. All of it is for speed alone: where it cannot be had, a process begins when a run comes.
"""

from __future__ import annotations

import logging
from typing import Final

import ray

logger = logging.getLogger(__name__)

_ASK_S: Final = 10.0


def ask_for_one() -> None:
    """Have this node start one more process. Waits for Ray; what keeps it from that is logged."""
    try:
        # Ray offers this to its own processes only, so another version may do without.
        from ray._private.grpc_utils import init_grpc_channel
        from ray.core.generated.common_pb2 import PYTHON
        from ray.core.generated.node_manager_pb2 import PrestartWorkersRequest
        from ray.core.generated.node_manager_pb2_grpc import NodeManagerServiceStub

        own = ray.get_runtime_context().get_node_id()
        [node] = [node for node in ray.nodes() if node["NodeID"] == own]
        with init_grpc_channel(f"{node['NodeManagerAddress']}:{node['NodeManagerPort']}") as channel:
            request = PrestartWorkersRequest(language=PYTHON, num_workers=1)
            NodeManagerServiceStub(channel).PrestartWorkers(request, timeout=_ASK_S)
    except Exception as error:  # noqa: BLE001 - whatever it is, runs only begin later
        logger.warning("no process is made ready for the next run: %s: %s", type(error).__name__, error)
