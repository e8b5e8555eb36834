"""An answer while it arrives: what every wire form has in common.

A reader is fed the events of one answer and ends with a `ModelResult` or a fault, whatever it is fed. Calls leave it only
with an answer that is whole; those of an answer that was cut off by its output limit or refused keep their input as the
text that came, so that nobody can run them (MODEL-05 to MODEL-07, REL-07). One reader serves one attempt.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import uuid4

from pydantic import ValidationError
from pydantic_core import from_json

from outpost_lsp.domain.lossless import lossless_fault
from outpost_lsp.domain.message import Block, ReasoningBlock, TextBlock, ToolCallBlock
from outpost_lsp.domain.model import ModelResult, ReasoningDelta, StopReason, TextDelta
from outpost_lsp.domain.record import MAX_SAFE_INTEGER
from outpost_lsp.domain.usage import Usage
from outpost_lsp.models.faults import Faults, error_in

MAX_CALLS: Final = 256
_END_MARK = b"[DONE]"
_TELLING_ID_LENGTH = 20


class AnswerReader(ABC):
    """Reads one answer. `done` becomes true when no further event can change it.

    `fresh` says that there are pieces to show; `take` hands them over, joined.
    """

    def __init__(self, faults: Faults, identity: str, model: str, sent: bytes) -> None:
        self.faults = faults
        self.done = False
        self.events = 0
        self.actual_model: str | None = None
        self._identity = identity
        self._model = model
        self._sent = sent
        self._odd_text = False
        self._pending: list[tuple[type[TextDelta | ReasoningDelta], list[str]]] = []

    @property
    def fresh(self) -> bool:
        """Whether pieces wait to be shown."""
        return bool(self._pending)

    def read(self, payload: bytes) -> None:
        """Take in the data of one event."""
        if payload == _END_MARK:
            self.end_mark()
            return
        self.events += 1
        try:
            event = from_json(payload, allow_inf_nan=False)
        except ValueError:
            event = self._odd_json(payload, "an event is not JSON")
        if type(event) is not dict:
            raise self.faults.malformed("an event is not a JSON object")
        self.event(event)

    def read_whole(self, body: bytes) -> None:
        """Take in a plain JSON body that came in place of a stream: an error, or the answer in one piece."""
        self.events += 1
        try:
            value = from_json(body, allow_inf_nan=False)
        except ValueError:
            value = self._odd_json(body, "its body is not JSON, and no stream of events either")
        if error := error_in(value):
            raise self.faults.of_error(error)
        if type(value) is not dict:
            raise self.faults.malformed("the body is not a JSON object")
        self.whole(value)

    def take(self) -> list[TextDelta | ReasoningDelta]:
        """The pieces since the last time, those of one kind that follow each other as one."""
        pending, self._pending = self._pending, []
        if self._odd_text:
            return [kind(_without_surrogates("".join(pieces))) for kind, pieces in pending]
        return [kind("".join(pieces)) for kind, pieces in pending]

    def receipt(self) -> Usage | None:
        """What an answer that will not become whole had reported, as a lower bound."""
        try:
            usage = self.usage()
        except Exception:  # noqa: BLE001 - a receipt that cannot be read must not hide the fault that it comes with
            return None
        return None if usage is None else usage.model_copy(update={"complete": False})

    @abstractmethod
    def event(self, event: dict[str, Any]) -> None:
        """Take in one decoded event."""

    @abstractmethod
    def whole(self, body: dict[str, Any]) -> None:
        """Take in an answer that came in one piece."""

    @abstractmethod
    def usage(self) -> Usage | None:
        """What was reported so far; a fault when it contradicts itself."""

    @abstractmethod
    def result(self) -> ModelResult:
        """The answer after the last event; a fault when it is not whole."""

    def end_mark(self) -> None:
        """The service said that nothing more comes."""
        self.done = True

    def show(self, piece: str, kind: type[TextDelta | ReasoningDelta] = TextDelta) -> None:
        """Put a piece among those to show."""
        pending = self._pending
        if pending and pending[-1][0] is kind:
            pending[-1][1].append(piece)
        else:
            pending.append((kind, [piece]))

    def cut(self) -> Exception:
        """The fault of an end before the answer was whole; without any event there was no answer at all."""
        return self.faults.cut() if self.events else self.faults.malformed("there is no answer in it")

    def reasoning(self, data: Any, text: str | None) -> ReasoningBlock:
        """A block that goes back to this service and this model only."""
        return ReasoningBlock(
            provider=self._identity, model=self._model, data=self.healed(data), text=self.healed(text) or None
        )

    def healed(self, value: Any) -> Any:
        """The same value without lone surrogates, which can be neither sent nor stored."""
        return _without_surrogates(value) if self._odd_text else value

    def finish(self, blocks: Sequence[Block | OpenCall], stop: StopReason, *, gave_text: bool = False) -> ModelResult:
        """The result of a whole answer: calls decoded, ids unique, the stop reason made to fit (MODEL-06)."""
        kept: list[Block] = []
        calls = [block for block in blocks if isinstance(block, OpenCall)]
        if stop == "end" and calls:
            stop = "tool-calls"
        elif stop == "tool-calls" and not calls:
            raise self.faults.malformed("it says that it calls tools and calls none")
        ids: set[str] = set()
        for block in blocks:
            if isinstance(block, OpenCall):
                kept.append(self._call(block, ids, run=stop == "tool-calls"))
            elif not isinstance(block, TextBlock) or block.text:
                kept.append(block)
        text = "".join(block.text for block in kept if isinstance(block, TextBlock))
        if not text and stop == "end":
            if not gave_text:
                raise self.faults.malformed("it has neither text nor calls")
            kept.append(TextBlock(text=""))
        return ModelResult(
            text=text, content=tuple(kept), stop_reason=stop, usage=self.usage(), model=self.healed(self.actual_model)
        )

    def checked_usage(self, **counters: int | None) -> Usage | None:
        """A usage out of counters that were read with `count`; absent when neither direction was reported."""
        read, written = counters.pop("input"), counters.pop("output")
        if read is None and written is None:
            return None
        complete = None if read is not None and written is not None else False
        try:
            return Usage(
                input=read or 0,
                cached=counters.get("cached") or 0,
                cache_created=counters.get("cache_created"),
                output=written or 0,
                complete=complete,
            )
        except ValidationError:
            raise self.faults.malformed("its token counts contradict each other") from None

    def count(self, usage: Mapping[str, Any], name: str) -> int | None:
        """One counter of a usage object; null counts as absent."""
        value = usage.get(name)
        if value is None:
            return None
        if type(value) is float and value.is_integer():
            value = int(value)
        if type(value) is not int or not 0 <= value <= MAX_SAFE_INTEGER:
            raise self.faults.malformed(f"{name} is no count")
        return value

    def object(self, value: Any, what: str) -> dict[str, Any]:
        """A JSON object; null counts as an empty one."""
        if value is None:
            return {}
        if type(value) is not dict:
            raise self.faults.malformed(f"{what} is not an object")
        return value

    def array(self, value: Any, what: str) -> list[Any]:
        """A JSON array; null counts as an empty one."""
        if value is None:
            return []
        if type(value) is not list:
            raise self.faults.malformed(f"{what} is not an array")
        return value

    def string(self, value: Any, what: str) -> str:
        """A text; null counts as an empty one."""
        if value is None:
            return ""
        if type(value) is not str:
            raise self.faults.malformed(f"{what} is not a text")
        return value

    def check_number_of_calls(self, number: int) -> None:
        """Refuse more calls than anybody means."""
        if number > MAX_CALLS:
            raise self.faults.too_large("the list of tool calls", f"{MAX_CALLS} calls")

    def _call(self, call: OpenCall, ids: set[str], *, run: bool) -> ToolCallBlock:
        name = self.healed(call.name)
        if not name:
            raise self.faults.malformed("a tool call has no name")
        id = self.healed(call.id)
        # Services that count their calls from 0 in each answer repeat themselves; a long id is taken to be random.
        if not id or id in ids or (len(id) < _TELLING_ID_LENGTH and json.dumps(id).encode() in self._sent):
            id = f"call_{uuid4().hex[:24]}"
        ids.add(id)
        return ToolCallBlock(id=id, name=name, input=self._input(call, run=run and call.closed))

    def _input(self, call: OpenCall, *, run: bool) -> Any:
        if call.value is not None:
            value = self.healed(call.value)
            usable = run and lossless_fault(value) is None
            return value if usable else json.dumps(value, ensure_ascii=False)
        text: str = self.healed("".join(call.pieces))
        if not run:
            return text
        return decoded_input(text)

    def _odd_json(self, payload: bytes, otherwise: str) -> Any:
        # The strict decoder refuses half a surrogate pair, which some services send when they cut a text within an
        # emoji. The lenient one takes it; what cannot be stored is mended when the pieces are joined.
        try:
            value = json.loads(payload, parse_constant=_refuse_constant)
        except (ValueError, RecursionError):
            raise self.faults.malformed(otherwise) from None
        self._odd_text = True
        return value


class OpenCall:
    """A tool call that is being put together. `value` holds an input that came decoded."""

    __slots__ = ("closed", "id", "name", "pieces", "value")

    def __init__(self, id: str = "", name: str = "", *, closed: bool = False) -> None:
        self.id = id
        self.name = name
        self.pieces: list[str] = []
        self.value: Any = None
        self.closed = closed


def decoded_input(text: str) -> Any:
    """The input of a call: nothing means an empty object, and what is not lossless JSON stays a text (TEXEC-12)."""
    if not text.strip():
        return {}
    try:
        value = from_json(text, allow_inf_nan=False)
    except ValueError:
        return text
    return text if lossless_fault(value) else value


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        # Halves that belong together were joined with the text; going through UTF-16 makes them one character.
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, list):
        return [_without_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(item) for key, item in value.items()}
    return value


def _refuse_constant(name: str) -> Any:
    raise ValueError(name)
