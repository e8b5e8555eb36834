"""Permission questions on their way to a person and back (U-44, SEC-20).

One at a time, in the order in which they came; a question that is dismissed, or not answered for long, is a denial, and
one whose run ended is withdrawn. The real arguments are shown, harmlessly.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from outpost_lsp.harness.gate import Answer
from outpost_lsp.lsp.outcome import without_links
from outpost_lsp.lsp.protocol import RequestFault
from outpost_lsp.service.asking import PATIENCE_S, question_text
from outpost_lsp.service.signals import Question

if TYPE_CHECKING:
    from outpost_lsp.lsp.protocol import OutpostProtocol

logger = logging.getLogger(__name__)

ANSWERS: Final[dict[str, Answer]] = {"Allow once": "allow", "Allow for this run": "allow-run", "Deny": "deny"}
_WARNING: Final = 2
_INFO: Final = 3


class Questions:
    """The line of questions of one client."""

    def __init__(self, protocol: OutpostProtocol, patience_s: float = PATIENCE_S) -> None:
        self._protocol = protocol
        self._patience_s = patience_s
        self._line: deque[Question] = deque()
        self._asking: asyncio.Task[None] | None = None

    def take(self, question: Question) -> None:
        """Put a question to the end of the line."""
        question.take()
        self._line.append(question)
        if self._asking is None:
            self._asking = asyncio.get_running_loop().create_task(self._ask_all(), name="ask for permission")

    async def confirm(self, text: str, yes: str) -> bool:
        """Ask for one yes; a question that is dismissed or not answered for long is a no."""
        return await self.choose(text, [yes, "Cancel"], kind=_WARNING) == yes

    async def choose(self, text: str, titles: Sequence[str], *, kind: int = _INFO) -> str | None:
        """Ask which one; `None` when nobody can be asked, or chooses."""
        params = {"type": kind, "message": without_links(text), "actions": [{"title": title} for title in titles]}
        try:
            chosen = await self._protocol.ask("window/showMessageRequest", params, self._patience_s)
        except (RequestFault, TimeoutError) as error:
            logger.info("a question got no answer and counts as a no: %s", error)
            return None
        title = chosen.get("title") if isinstance(chosen, dict) else None
        return title if title in titles else None

    def close(self) -> None:
        """Nobody can answer any more: deny what is left."""
        if self._asking is not None:
            self._asking.cancel()
        while self._line:
            self._line.popleft().answer("deny")

    async def _ask_all(self) -> None:
        try:
            while self._line:
                question = self._line.popleft()
                if not question.withdrawn:
                    await self._ask(question)
        finally:
            self._asking = None

    async def _ask(self, question: Question) -> None:
        asking = asyncio.get_running_loop().create_task(self._answer(question))
        question.on_settled(lambda: _cancel(asking))
        try:
            await asyncio.wait({asking})
        finally:
            asking.cancel()
            question.answer("deny")

    async def _answer(self, question: Question) -> None:
        params = {
            "type": _WARNING,
            "message": without_links(f"Outpost: {question_text(question)}"),
            "actions": [{"title": title} for title in ANSWERS],
        }
        try:
            chosen = await self._protocol.ask("window/showMessageRequest", params, self._patience_s)
        except (RequestFault, TimeoutError) as error:
            logger.info("a permission question got no answer and counts as denied: %s", error)
            chosen = None
        title = chosen.get("title") if isinstance(chosen, dict) else None
        question.answer(ANSWERS.get(title, "deny") if isinstance(title, str) else "deny")


def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
