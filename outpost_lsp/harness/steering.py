"""A person's text, delivered to a running agent at its next boundary (STEER rules). Held in memory only."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from outpost_lsp.errors import OutpostError, configuration

Mode = Literal["injected", "resumed"]
SteeringState = Literal["idle", "active", "closed"]


class _Anyone:
    """The target when none was named: whichever running loop meets a boundary first."""


ANYONE: Final = _Anyone()
Target = str | None | _Anyone

_ENDED: Final = "that run has ended"


@dataclass(frozen=True, slots=True)
class Delivery:
    """How a text reached the agent: it joined the running turn, or the conversation was resumed for it (STEER-03)."""

    mode: Mode


@dataclass(slots=True, eq=False)
class Waiting:
    """A text on its way, whose sender waits for its delivery."""

    text: str
    target: Target
    delivered: asyncio.Future[Delivery] = field(repr=False)

    def confirm(self, mode: Mode) -> None:
        """Tell the sender how the text was received."""
        if not self.delivered.done():
            self.delivered.set_result(Delivery(mode))

    def refuse(self, why: str) -> None:
        """Tell the sender that nobody received the text."""
        if not self.delivered.done():
            self.delivered.set_exception(_undelivered(self.text, self.target, why))


class Steering:
    """A controller given to one dispatch at a time. `send` may be called from any task of the same event loop."""

    def __init__(self) -> None:
        self._state: SteeringState = "idle"
        self._waiting: list[Waiting] = []
        self._arrivals: set[asyncio.Event] = set()
        self._ended: set[str] = set()
        """The children of this dispatch whose runs are over: no text reaches them any more."""

    @property
    def state(self) -> SteeringState:
        """`active` while attached to a running dispatch."""
        return self._state

    async def send(self, text: str, subagent: Target = ANYONE) -> Delivery:
        """Wait until the agent has received `text`.

        `subagent`: a run id reaches that run only, `None` the main loop only, omitted whichever loop comes first.
        Raises `steering` with `details.text` when the text could not be delivered. Cancelling the call withdraws it.
        """
        if not isinstance(text, str) or not text.strip():
            raise configuration("steering: text: text that is not blank is expected")
        if not (subagent is None or subagent is ANYONE or (isinstance(subagent, str) and subagent.strip())):
            raise configuration("steering: subagent: a run id, None or nothing is expected")
        if self._state == "closed":
            raise _undelivered(text, subagent, "the controller is closed")
        if subagent in self._ended:
            raise _undelivered(text, subagent, _ENDED)
        waiting = Waiting(text, subagent, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        for arrival in self._arrivals:
            arrival.set()
        try:
            return await waiting.delivered
        finally:
            if waiting in self._waiting:
                self._waiting.remove(waiting)

    def close(self) -> None:
        """Reject what waits and every later `send`."""
        self._state = "closed"
        self._reject(self._waiting, "the controller was closed")

    def attach(self) -> None:
        """A dispatch begins to use the controller; one at a time (STEER-10)."""
        if self._state == "closed":
            raise configuration("steering: the controller is closed")
        if self._state == "active":
            raise configuration("steering: another dispatch uses this controller")
        self._state = "active"

    def detach(self) -> None:
        """The dispatch is over: whatever was not delivered is rejected (STEER-09)."""
        if self._state == "active":
            self._state = "idle"
            self._ended.clear()
            self._reject(self._waiting, "the dispatch ended first")

    def has(self, run: str | None) -> bool:
        """Whether a text waits that the loop with this run id (`None`: the main loop) would receive."""
        return any(_reaches(waiting, run) for waiting in self._waiting)

    def take(self, run: str | None, mode: Mode) -> list[str]:
        """The texts for this loop, in order; each is confirmed to its sender now (STEER-15)."""
        if not self._waiting:
            return []
        taken = [waiting for waiting in self._waiting if _reaches(waiting, run)]
        for waiting in taken:
            self._waiting.remove(waiting)
            waiting.confirm(mode)
        return [waiting.text for waiting in taken]

    def hand_over(self) -> list[Waiting]:
        """Every text that waits, for an agent elsewhere; whoever takes them confirms or refuses each."""
        taken, self._waiting = self._waiting, []
        return taken

    async def changed(self) -> None:
        """Until somebody sends a text: for agents that meet no boundary of their own (STEER-14)."""
        arrival = asyncio.Event()
        self._arrivals.add(arrival)
        try:
            await arrival.wait()
        finally:
            self._arrivals.discard(arrival)

    def refuse_runs(self) -> None:
        """Reject what is addressed to a child: this agent has none (STEER-12)."""
        addressed = [waiting for waiting in self._waiting if isinstance(waiting.target, str)]
        self._reject(addressed, "an external agent has no runs that can be addressed")

    def run_ended(self, run: str) -> None:
        """Reject what is addressed to a child whose run has ended, now and later (STEER-08)."""
        self._ended.add(run)
        self._reject([waiting for waiting in self._waiting if waiting.target == run], _ENDED)

    def _reject(self, rejected: list[Waiting], why: str) -> None:
        for waiting in list(rejected):
            if waiting in self._waiting:
                self._waiting.remove(waiting)
            waiting.refuse(why)


def _reaches(waiting: Waiting, run: str | None) -> bool:
    if waiting.delivered.done():
        return False
    return waiting.target is ANYONE or waiting.target == run


def _undelivered(text: str, target: Target, why: str) -> OutpostError:
    details: dict[str, Any] = {"text": text}
    if isinstance(target, str):
        details["subagent"] = target
    return OutpostError("steering", f"the instruction was not delivered: {why}", details)
