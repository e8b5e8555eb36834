"""Decision providers of one line, for tests."""

from __future__ import annotations

from typing import Any

from outpost_lsp.domain.decision import DecisionRequest


class Provider:
    """A provider whose request is the given coroutine function."""

    def __init__(self, run: Any, name: Any = "mine") -> None:
        self.name = name
        self._run = run
        self.calls = 0

    async def request(self, request: DecisionRequest, /) -> Any:
        self.calls += 1
        return await self._run(request)


def giving(result: Any) -> Provider:
    async def run(_request: DecisionRequest) -> Any:
        return result

    return Provider(run)
