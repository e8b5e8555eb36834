"""A provider that answers from a list: the public double for tests of agents.

It plays through the same contract as a service: what is asked is recorded, what is answered streams. Nothing is
invented: a request beyond the last reply is a fault that says so.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from outpost_lsp.domain.message import Block, TextBlock, ToolCallBlock
from outpost_lsp.domain.model import (
    Completed,
    ModelRequest,
    ModelResult,
    ModelSpec,
    ReasoningDelta,
    Retry,
    StreamEvent,
    TextDelta,
)
from outpost_lsp.domain.usage import Usage
from outpost_lsp.errors import OutpostError, configuration

Reply = ModelResult | str | Exception | Sequence[StreamEvent] | Callable[[ModelRequest], Any]
"""A whole answer, its text, the fault of a request, the very events of a stream, or a function (plain or coroutine)
that is given the request and returns one of these."""

_FIELDS = frozenset({"text", "calls", "stopReason", "usage", "model"})


class ScriptedModelProvider:
    """Answers each request with the next reply.

    `replies` is a list, or a mapping from model names to lists when several models take part. `requests` holds what was
    asked, each with the messages as they were then.
    """

    def __init__(
        self,
        replies: Iterable[Reply] | Mapping[str, Iterable[Reply]],
        *,
        name: str = "scripted",
        identity: str = "scripted",
    ) -> None:
        self.requests: list[ModelRequest] = []
        self._name = name
        self._identity = identity
        if isinstance(replies, Mapping):
            self._by_model: dict[str | None, list[Reply]] = {model: list(of) for model, of in replies.items()}
        else:
            self._by_model = {None: list(replies)}

    @classmethod
    def from_file(
        cls, path: Path | str, *, name: str = "scripted", identity: str = "scripted"
    ) -> ScriptedModelProvider:
        """Replies out of a JSON file: a list, or an object of lists by model name.

        A reply is a text, or an object with any of `text`, `calls` (each `name`, `input` and, if it matters, `id`),
        `stopReason`, `usage` and `model`.
        """
        try:
            script = json.loads(Path(path).read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise configuration(f"replies: {path} cannot be read as JSON") from error
        if isinstance(script, dict):
            return cls({model: _replies(of, path) for model, of in script.items()}, name=name, identity=identity)
        return cls(_replies(script, path), name=name, identity=identity)

    @property
    def name(self) -> str:
        """What faults and events call this provider."""
        return self._name

    @property
    def identity(self) -> str:
        """Whose reasoning this provider takes back."""
        return self._identity

    @property
    def left(self) -> int:
        """How many replies were not asked for."""
        return sum(len(replies) for replies in self._by_model.values())

    def validate(self, model: ModelSpec) -> None:
        """Refuse a model that there are no replies for."""
        if None not in self._by_model and model.name not in self._by_model:
            raise configuration(f"model: {self._name} has no replies for {model.name}")

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
        """The next reply, as a stream."""
        messages = None if request.messages is None else tuple(request.messages)
        self.requests.append(replace(request, messages=messages))
        replies = self._by_model.get(request.model) or self._by_model.get(None)
        if not replies:
            number = len(self.requests)
            raise OutpostError(
                "response", f"{self._name}: there is no reply left for request {number} ({request.model})"
            )
        reply: Any = replies.pop(0)
        if callable(reply) and not isinstance(reply, Exception):
            reply = reply(request)
            if inspect.isawaitable(reply):
                reply = await reply
        for event in _events(reply):
            yield event


def _events(reply: object) -> Iterable[StreamEvent]:
    if isinstance(reply, BaseException):
        raise reply
    if isinstance(reply, str):
        reply = ModelResult(text=reply, content=(TextBlock(text=reply),), stop_reason="end")
    if isinstance(reply, ModelResult):
        text = reply.text or "".join(block.text for block in reply.blocks if isinstance(block, TextBlock))
        return [*([TextDelta(text)] if text else []), Completed(reply)]
    if isinstance(reply, Sequence) and all(
        isinstance(event, TextDelta | ReasoningDelta | Retry | Completed) for event in reply
    ):
        return reply
    raise configuration(f"replies: {type(reply).__name__} is no reply")


def _replies(script: object, path: Path | str) -> list[Reply]:
    if not isinstance(script, list):
        raise configuration(f"replies: {path} must hold a list, or lists by model name")
    return [_reply(entry, f"{path}, reply {number}") for number, entry in enumerate(script, 1)]


def _reply(entry: object, where: str) -> Reply:
    if isinstance(entry, str):
        return entry
    if not isinstance(entry, dict) or not set(entry) <= _FIELDS:
        raise configuration(f"replies: {where}: a text, or an object of {', '.join(sorted(_FIELDS))}, is expected")
    text = entry.get("text", "")
    blocks: list[Block] = [TextBlock(text=text)] if text else []
    try:
        for number, call in enumerate(entry.get("calls", ()), 1):
            id = call.get("id", f"call_{abs(hash((where, number))):x}")
            blocks.append(ToolCallBlock(id=id, name=call["name"], input=call.get("input", {})))
        usage = Usage.model_validate(entry["usage"]) if "usage" in entry else None
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise configuration(f"replies: {where}: {error}") from error
    return ModelResult(
        text=text,
        content=tuple(blocks) or None,
        stop_reason=entry.get("stopReason"),
        usage=usage,
        model=entry.get("model"),
    )
