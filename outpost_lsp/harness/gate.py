"""Whether a tool call may run: the rules of a loop and of all its ancestors, and the question to a person (PERM rules)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import anyio

from outpost_lsp.domain.permission import Permissions, Resources
from outpost_lsp.domain.sandbox import Lease
from outpost_lsp.errors import OutpostError

Answer = Literal["allow", "allow-run", "deny"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PermissionQuestion:
    """What a person is asked; a yes covers exactly these arguments (SEC-20)."""

    tool: str
    input: Any
    reason: str
    resources: Resources
    subagent_id: str | None = None


Ask = Callable[[PermissionQuestion], Awaitable[Answer]]


class Asking:
    """The questions of one run: one at a time, and a yes for the run is remembered (PERM-10)."""

    def __init__(self, ask: Ask | None, hold: Callable[[], Any]) -> None:
        self._ask = ask
        self._hold = hold
        self._turn = anyio.Lock()
        self._granted: set[tuple[str, Resources]] = set()

    async def allows(self, question: PermissionQuestion) -> bool:
        """Whether a person allows the call. Nobody to ask means no."""
        if self._ask is None:
            return False
        async with self._turn:
            key = (question.tool, question.resources)
            if key in self._granted:
                return True
            # A person may take their time: the silence is not the agent's.
            with self._hold():
                answer = await self._ask(question)
            if answer == "allow-run":
                self._granted.add(key)
            return answer in ("allow", "allow-run")


class Gate:
    """The rules in force for one loop: all ancestors' first, then its own (PERM-08, SUB-40)."""

    def __init__(self, chain: Sequence[Permissions], asking: Asking) -> None:
        self.chain = tuple(chain)
        self._asking = asking

    async def denial(
        self, tool: str, value: Any, resources: Resources, answered: set[Resources], subagent_id: str | None
    ) -> str | None:
        """Why the call may not run; `None` when it may.

        `answered` holds what a person allowed for this call already, so that input which a hook rewrote without
        touching other resources is not asked about twice.
        """
        question = None
        for permissions in self.chain:
            verdict = permissions.verdict(tool, resources)
            if verdict.effect == "deny":
                return verdict.reason
            if verdict.effect == "ask" and question is None:
                question = verdict.reason
        if question is None or resources in answered:
            return None
        asked = PermissionQuestion(
            tool=tool, input=value, reason=question, resources=resources, subagent_id=subagent_id
        )
        if await self._asking.allows(asked):
            answered.add(resources)
            return None
        return f"{question}: permission was not given"

    def __bool__(self) -> bool:
        return bool(self.chain)


def inside(lease: Lease, resources: Resources) -> Resources:
    """The resources with each path relative to the root; one that leaves it becomes `..`, which no glob matches."""
    return Resources(tuple(_relative(lease, path) for path in resources.paths), resources.command)


def _relative(lease: Lease, path: str) -> str:
    try:
        return lease.files.normalise(path)
    except OutpostError:
        return ".."
