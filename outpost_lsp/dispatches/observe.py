"""Where observations leave: numbered, timed, scoped, and never in the way of the run (OBS rules).

A hub numbers events over itself and all its children. A synchronous sink runs at once; an asynchronous one has an
ordered, bounded queue. A sink that fails or is slow loses events, is named among the errors, and changes nothing else.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from outpost_lsp.domain.event import Event
from outpost_lsp.domain.observation import DispatchStartEvent, Observation, Scope, Source
from outpost_lsp.errors import configuration

Sink = Callable[[Observation], Any]
MAX_ERRORS: Final = 100
_FIRST: Final = Observation(seq=0, at="", source="harness", scope=Scope(), event=DispatchStartEvent())
_REDACTED: Final = "[redacted]"


def now_text() -> str:
    """The time as events carry it: ISO 8601, UTC, milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class _Root:
    """What a hub shares with all its children."""

    def __init__(self, capacity: int, delivery_timeout_s: float) -> None:
        self.seq = 0
        self.capacity = capacity
        self.delivery_timeout_s = delivery_timeout_s
        self.errors: list[str] = []
        self.emitting = False
        self.pending: deque[tuple[ObservationHub, Event, Source, Scope]] = deque()

    def failed(self, message: str) -> None:
        if len(self.errors) < MAX_ERRORS:
            self.errors.append(message)


class ObservationHub:
    """A place to emit events to, with sinks that receive them."""

    def __init__(
        self,
        sinks: Iterable[Sink] = (),
        *,
        scope: Scope | Mapping[str, Any] | None = None,
        capacity: int = 1024,
        delivery_timeout_s: float = 5.0,
        verbose: bool = False,
        redact: Sequence[str | re.Pattern[str]] = (),
    ) -> None:
        if type(capacity) is not int or capacity < 1:
            raise configuration("ObservationHub: capacity: a positive integer is expected")
        if not delivery_timeout_s > 0:
            raise configuration("ObservationHub: delivery_timeout_s: a positive number is expected")
        self._root = _Root(capacity, delivery_timeout_s)
        self._parent: ObservationHub | None = None
        self._children: list[ObservationHub] = []
        self._scope = scope if isinstance(scope, Scope) else Scope(**(scope or {}))
        self._inner = self._merged = self._scope
        self._redact = patterns(redact)
        self.verbose = verbose
        self._sinks: list[_SyncSink | _QueuedSink] = []
        self._closed = False
        for sink in sinks:
            self.add_sink(sink)

    def add_sink(self, sink: Sink) -> None:
        """Deliver to one more sink from now on."""
        call = sink.__call__ if not inspect.isfunction(sink) and not inspect.ismethod(sink) else sink  # type: ignore[operator]
        self._sinks.append(
            _QueuedSink(sink, self._root) if inspect.iscoroutinefunction(call) else _SyncSink(sink, self._root)
        )

    def child(self, scope: Mapping[str, Any], *, sinks: Iterable[Sink] = ()) -> ObservationHub:
        """A hub whose scope is merged over this one's and whose events this one's sinks receive too (OBS-01)."""
        hub = ObservationHub(sinks, scope=_merged(self._scope, Scope(**scope)), verbose=self.verbose)
        hub._join(self)
        self._children.append(hub)
        return hub

    def _join(self, parent: ObservationHub) -> None:
        self._parent = parent
        self._root = parent._root
        for sink in self._sinks:
            sink.root = parent._root

    @property
    def errors(self) -> tuple[str, ...]:
        """What sinks did wrong, at most 100."""
        return tuple(self._root.errors)

    @property
    def dropped(self) -> int:
        """Events that some sink did not get."""
        return sum(sink.dropped for sink in self._sinks) + sum(child.dropped for child in self._children)

    def emit(self, event: Event, source: Source = "harness", scope: Scope | None = None) -> None:
        """Number, time and deliver an event. Never raises; ignored after `close` (OBS-07, OBS-09)."""
        if self._closed:
            return
        if scope is not None and scope is not self._inner:
            # Events come in rows from one place, so their scope is merged once.
            self._inner, self._merged = scope, _merged(self._scope, scope)
        merged = self._scope if scope is None else self._merged
        if self._root.emitting:
            # Emitted from inside a sink: queued, bounded (OBS-08).
            if len(self._root.pending) < self._root.capacity:
                self._root.pending.append((self, event, source, merged))
            else:
                self._root.failed("an event emitted from inside a sink was dropped: the queue is full")
            return
        self._root.emitting = True
        try:
            self._deliver(event, source, merged)
            while self._root.pending:
                hub, queued, of, within = self._root.pending.popleft()
                hub._deliver(queued, of, within)
        finally:
            self._root.emitting = False

    def _deliver(self, event: Event, source: Source, scope: Scope) -> None:
        self._root.seq += 1
        at = event.at or now_text()
        observation = _FIRST.with_values(seq=self._root.seq, at=at, source=source, scope=scope, event=event)
        hub: ObservationHub | None = self
        while hub is not None:
            if not hub._closed:
                shown = hub._redacted(observation)
                for sink in hub._sinks:
                    sink.deliver(shown)
            hub = hub._parent

    def _redacted(self, observation: Observation) -> Observation:
        if not self._redact:
            return observation
        data = redacted(observation.event.model_dump(), self._redact)
        return observation.model_copy(update={"event": type(observation.event).model_construct(**data)})

    async def flush(self) -> None:
        """Wait until everything emitted so far was delivered or given up."""
        for sink in self._sinks:
            await sink.flush()
        for child in self._children:
            await child.flush()

    async def close(self) -> None:
        """Stop this scope and its descendants, then drain."""
        self._closed = True
        for child in self._children:
            await child.close()
        for sink in self._sinks:
            await sink.close()


class _SyncSink:
    def __init__(self, sink: Sink, root: _Root) -> None:
        self._sink = sink
        self.root = root
        self.dropped = 0

    def deliver(self, observation: Observation) -> None:
        try:
            self._sink(observation)
        except Exception as error:  # noqa: BLE001 - whatever a sink does, the run goes on (OBS-07)
            self.root.failed(f"an observer failed: {error}")

    async def flush(self) -> None:
        """Nothing waits here."""

    async def close(self) -> None:
        """Nothing waits here."""


class _QueuedSink:
    def __init__(self, sink: Callable[[Observation], Awaitable[Any]], root: _Root) -> None:
        self._sink = sink
        self.root = root
        self.dropped = 0
        self._queue: deque[Observation] = deque()
        self._worker: asyncio.Task[None] | None = None
        self._disabled = False
        self._overflowed = False

    def deliver(self, observation: Observation) -> None:
        if self._disabled:
            self.dropped += 1
            return
        if len(self._queue) >= self.root.capacity:
            self.dropped += 1
            if not self._overflowed:
                self._overflowed = True
                self.root.failed("an observer is too slow: events were dropped")
            return
        self._queue.append(observation)
        if self._worker is None or self._worker.done():
            self._worker = asyncio.ensure_future(self._work())

    async def _work(self) -> None:
        while self._queue and not self._disabled:
            observation = self._queue.popleft()
            try:
                async with asyncio.timeout(self.root.delivery_timeout_s):
                    await self._sink(observation)
            except TimeoutError:
                self._disabled = True
                self.dropped += len(self._queue) + 1
                self._queue.clear()
                self.root.failed("an observer took too long and was disabled")
            except Exception as error:  # noqa: BLE001 - whatever a sink does, the run goes on (OBS-07)
                self.root.failed(f"an observer failed: {error}")

    async def flush(self) -> None:
        if self._worker is not None:
            await asyncio.gather(self._worker, return_exceptions=True)

    async def close(self) -> None:
        await self.flush()


def patterns(given: Sequence[str | re.Pattern[str]]) -> tuple[re.Pattern[str], ...]:
    """Redaction patterns, compiled; `configuration` for one that is no expression."""
    try:
        return tuple(re.compile(pattern) for pattern in given)
    except (re.error, TypeError) as error:
        raise configuration(f"redact: {error}") from error


def redacted(value: Any, masks: Sequence[re.Pattern[str]]) -> Any:
    """A copy of a JSON-like value with every match in its texts masked; keys are left alone."""
    if isinstance(value, str):
        for mask in masks:
            value = mask.sub(_REDACTED, value)
        return value
    if isinstance(value, Mapping):
        return {key: redacted(item, masks) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(redacted(item, masks) for item in value)
    return value


def _merged(outer: Scope, inner: Scope) -> Scope:
    update = {name: value for name in inner.model_fields_set if (value := getattr(inner, name)) is not None}
    return outer.with_values(**update) if update else outer
