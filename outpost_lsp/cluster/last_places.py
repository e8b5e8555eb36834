"""Which node a repository's last job went to: its base is there, so the next one is likely to be quicker there."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

MOST: Final = 10_000


class LastPlaces:
    """Nodes by repository; so many, those that were not asked for longest go first."""

    def __init__(self, most: int = MOST) -> None:
        self._nodes: OrderedDict[str, str] = OrderedDict()
        self._most = most

    def went(self, repository: str, node: str) -> None:
        """A job of this repository is on this node."""
        self._nodes[repository] = node
        self._nodes.move_to_end(repository)
        if len(self._nodes) > self._most:
            self._nodes.popitem(last=False)

    def where(self, repository: str) -> str | None:
        """Where the last one went."""
        node = self._nodes.get(repository)
        if node is not None:
            self._nodes.move_to_end(repository)
        return node
