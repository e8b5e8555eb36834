"""What people say to an agent on another machine: answers to its questions, and what they send it meanwhile.

The invariant: a question that cannot be answered there is denied there; an instruction is confirmed when the agent was
given it, and refused otherwise. Used by `remote_turns.py` for one job.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

from outpost_lsp.domain.job import JobEvent, JobHandle
from outpost_lsp.domain.markdown import one_line
from outpost_lsp.domain.permission import Resources
from outpost_lsp.errors import OutpostError
from outpost_lsp.harness.gate import PermissionQuestion
from outpost_lsp.harness.runtime import TurnRuntime
from outpost_lsp.harness.steering import ANYONE, Steering, Waiting

logger = logging.getLogger(__name__)


class RemotePeople:
    """The people of one job."""

    def __init__(self, handle: JobHandle, runtime: TurnRuntime) -> None:
        self._handle = handle
        self._runtime = runtime
        self._steered: dict[str, Waiting] = {}

    @asynccontextmanager
    async def there(self) -> AsyncIterator[RemotePeople]:
        """What a person sends meanwhile goes to the job; what was not received by its end is refused."""
        steering = self._runtime.steering
        if steering is None:
            yield self
            return
        forwarding = asyncio.ensure_future(self._forward(steering))
        try:
            yield self
        finally:
            forwarding.cancel()
            await asyncio.gather(forwarding, return_exceptions=True)
            for waiting in self._steered.values():
                waiting.refuse("the dispatch ended first")

    async def ask(self, event: JobEvent) -> None:
        """Ask the people here what the job asks, and send their answer."""
        asked = event.data
        command = asked.get("command")
        question = PermissionQuestion(
            tool=one_line(str(asked.get("tool"))),
            input=asked.get("input"),
            reason=one_line(str(asked.get("reason")), 500),
            resources=Resources(tuple(texts(asked.get("paths"))), None if command is None else str(command)),
            subagent_id=None if asked.get("subagentId") is None else str(asked["subagentId"]),
        )
        allowed = await self._runtime.asking.allows(question)
        try:
            await self._handle.answer(str(asked.get("id")), "allow" if allowed else "deny")
        except OutpostError as error:
            # A question that gets no answer is denied; what became of the job is among its events.
            logger.info("an answer did not arrive: %s", error)

    def settle(self, event: JobEvent) -> None:
        """Take what became of an instruction."""
        waiting = self._steered.pop(str(event.data.get("id")), None)
        if waiting is None:
            return
        mode = event.data.get("mode")
        if mode in ("injected", "resumed"):
            waiting.confirm(mode)
        else:
            waiting.refuse(one_line(str(event.data.get("error") or "the worker did not deliver it")))

    async def _forward(self, steering: Steering) -> None:
        while True:
            taken = steering.hand_over()
            if not taken:
                # Nothing is awaited in between, so that nothing can arrive unseen.
                await steering.changed()
            for waiting in taken:
                id = uuid4().hex
                self._steered[id] = waiting
                to_anyone = waiting.target is ANYONE
                target = waiting.target if isinstance(waiting.target, str) else None
                try:
                    await self._handle.steer(id, waiting.text, target, to_anyone=to_anyone)
                except OutpostError as error:
                    if self._steered.pop(id, None) is not None:
                        waiting.refuse(error.message)


def texts(value: Any) -> list[str]:
    """The texts of a list that came from a worker; whatever else is there is left out."""
    return [text for text in value if isinstance(text, str)] if isinstance(value, list | tuple) else []
