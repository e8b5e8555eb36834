"""What an agent and a model say to each other, and the history that holds it.

A `Message` is encoded once per wire form: the bytes are kept beside it, so that a step costs what is new, whatever
came before. A `History` checks each message as it arrives (MODEL-04) and never walks what it already holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import Field, PrivateAttr

from outpost_lsp.domain.record import Record
from outpost_lsp.errors import OutpostError

Made = TypeVar("Made")


class TextBlock(Record):
    """Visible text."""

    type: Literal["text"] = "text"
    text: str


class ToolCallBlock(Record):
    """A call that the model asks for. `input` is what it sent: any JSON, text when it was broken JSON (TEXEC-12)."""

    type: Literal["tool-call"] = "tool-call"
    id: str
    name: str
    input: Any = None


class ToolResultBlock(Record):
    """The answer to one call. `is_error` is left out unless true."""

    type: Literal["tool-result"] = "tool-result"
    call_id: str
    content: str
    is_error: Literal[True] | None = None


class ReasoningBlock(Record):
    """Opaque reasoning; goes back only to the provider and model that made it (MODEL-08)."""

    type: Literal["reasoning"] = "reasoning"
    provider: str
    model: str
    data: Any
    text: str | None = None


Block = Annotated[TextBlock | ToolCallBlock | ToolResultBlock | ReasoningBlock, Field(discriminator="type")]
Role = Literal["user", "assistant"]


class _Kept(dict[str, Any]):
    """What was made of a message. It is no part of what the message says, so any two are equal."""

    __slots__ = ()
    __hash__ = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Kept)


class Message(Record):
    """One turn of one side."""

    role: Role
    content: tuple[Block, ...]
    _kept: _Kept = PrivateAttr(default_factory=_Kept)

    def kept(self, form: str, make: Callable[[Message], Made]) -> Made:
        """What `make` gives for this message, made the first time only and kept under `form`."""
        # Read where the private attributes lie: the way through `self._kept` takes fifty times as long, and this is
        # asked for every message of every request.
        private = self.__pydantic_private__
        assert private is not None
        kept: _Kept = private["_kept"]
        found: Made | None = kept.get(form)
        if found is None:
            found = kept[form] = make(self)
        return found

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy, which keeps nothing of what was made of the original: it may say something else."""
        copied = super().model_copy(update=update, deep=deep)
        private = copied.__pydantic_private__
        assert private is not None
        private["_kept"] = _Kept()
        return copied

    def encoded(self, form: str, encode: Callable[[Message], bytes]) -> bytes:
        """The bytes of this message in the wire form named `form`, made once.

        `form` must name everything the bytes depend on: the protocol, and the provider and model whose reasoning
        is kept.
        """
        return self.kept(form, encode)

    @property
    def text(self) -> str:
        """All text blocks joined."""
        return "".join(block.text for block in self.content if isinstance(block, TextBlock))

    @property
    def calls(self) -> tuple[ToolCallBlock, ...]:
        """The tool calls, in order."""
        return tuple(block for block in self.content if isinstance(block, ToolCallBlock))

    @property
    def results(self) -> tuple[ToolResultBlock, ...]:
        """The tool results, in order."""
        return tuple(block for block in self.content if isinstance(block, ToolResultBlock))


def user(*texts: str) -> Message:
    """A user message with one text block for each nonempty text."""
    return Message(role="user", content=tuple(TextBlock(text=text) for text in texts if text))


class History(Sequence[Message]):
    """The messages of a conversation, valid at every moment.

    Each message is checked against the one before it when it is appended, so that a request never checks again.
    The wire bytes are kept per form as well, so that asking for all of them touches only the new messages.
    """

    __slots__ = ("_messages", "_places", "_totals", "_wire")

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        self._messages: list[Message] = []
        self._wire: dict[str, tuple[int, list[bytes]]] = {}
        self._totals: dict[str, tuple[int, int]] = {}
        self._places: dict[str, tuple[int, list[int]]] = {}
        for message in messages:
            self.append(message)

    def append(self, message: Message) -> None:
        """Add a message; `configuration` when it may not stand here (MODEL-04)."""
        self.check(message)
        self._messages.append(message)

    def check(self, message: Message) -> None:
        """Raise `configuration` when `message` may not stand next; nothing is added."""
        if fault := _misplaced(self._messages[-1] if self._messages else None, message):
            raise OutpostError("configuration", f"messages: {fault}")

    def replace(self, messages: Iterable[Message]) -> None:
        """Put a compacted history in place of this one; checked before anything changes, unless it was already."""
        checked = messages if isinstance(messages, History) else History(messages)
        self._messages = list(checked)
        self._wire.clear()
        self._totals.clear()
        self._places.clear()

    def encoded(self, form: str, encode: Callable[[Message], bytes]) -> Sequence[bytes]:
        """The bytes of every message in the wire form named `form`, without those that encode to nothing.

        The answer is the kept list itself: read it, do not change it.
        """
        self.encode_some(form, encode, len(self._messages))
        return self._wire[form][1] if form in self._wire else []

    def encode_some(self, form: str, encode: Callable[[Message], bytes], most: int) -> bool:
        """Encode at most so many of the messages that are new in `form`; whether any are left.

        A history of thousands of messages is encoded with pauses by that.
        """
        done, pieces = self._wire.get(form, (0, []))
        new = self._messages[done : done + most]
        if new:
            pieces.extend(piece for message in new if (piece := message.encoded(form, encode)))
            self._wire[form] = (done + len(new), pieces)
        return done + len(new) < len(self._messages)

    def total(self, name: str, measure: Callable[[Message], int]) -> int:
        """The sum of a measure over all messages; each is measured once, under `name`."""
        done, total = self._totals.get(name, (0, 0))
        total += sum(measure(message) for message in self._messages[done:])
        self._totals[name] = (len(self._messages), total)
        return total

    def places(self, name: str, test: Callable[[Message], bool]) -> Sequence[int]:
        """Where the messages stand that pass a test; each is tested once, under `name`."""
        done, places = self._places.get(name, (0, []))
        places.extend(at for at, message in enumerate(self._messages[done:], done) if test(message))
        self._places[name] = (len(self._messages), places)
        return places

    def snapshot(self) -> Snapshot:
        """The messages of this moment."""
        taken = Snapshot(self._messages)
        taken.history = self
        return taken

    def open_calls(self) -> tuple[ToolCallBlock, ...]:
        """Calls of the last message that have no result yet."""
        last = self._messages[-1] if self._messages else None
        return last.calls if last is not None and last.role == "assistant" else ()

    def __len__(self) -> int:
        return len(self._messages)

    def __iter__(self) -> Iterator[Message]:
        return iter(self._messages)

    def __getitem__(self, index: Any) -> Any:
        return self._messages[index]


class Snapshot(tuple[Message, ...]):  # noqa: SLOT001 - a tuple has no room for slots
    """The messages of a history at one moment; it knows the history, which was measured already."""

    history: History


def validate_messages(messages: Sequence[Message]) -> None:
    """Check a whole request: what `History` checks, and that it begins and ends with the user (MODEL-04)."""
    if isinstance(messages, History):
        last = messages[-1] if len(messages) else None
    else:
        History(messages)
        last = messages[-1] if messages else None
    if last is None:
        raise OutpostError("configuration", "messages: at least one message is needed")
    if last.role != "user":
        raise OutpostError("configuration", "messages: the last message must be the user's")


def without_reasoning(messages: Iterable[Message]) -> list[Message]:
    """The messages without reasoning blocks; one that held nothing else is left out (CTX-02)."""
    kept = []
    for message in messages:
        if not any(isinstance(block, ReasoningBlock) for block in message.content):
            kept.append(message)
            continue
        content = tuple(block for block in message.content if not isinstance(block, ReasoningBlock))
        if content:
            kept.append(Message(role=message.role, content=content))
    return kept


def _misplaced(previous: Message | None, message: Message) -> str | None:
    if not message.content:
        return "a message has no content"
    if previous is None and message.role != "user":
        return "the first message must be the user's"
    if message.role == "assistant":
        if any(isinstance(block, ToolResultBlock) for block in message.content):
            return "a tool result stands in an assistant message"
        if previous is not None and previous.role == "assistant":
            return "two assistant messages follow each other"
        return None
    if any(isinstance(block, ToolCallBlock | ReasoningBlock) for block in message.content):
        return "a tool call or reasoning stands in a user message"
    return _unpaired(previous.calls if previous is not None else (), message.results)


def _unpaired(calls: Sequence[ToolCallBlock], results: Sequence[ToolResultBlock]) -> str | None:
    # Pairs by count and order of ids, since a service may repeat an id within one answer (TOOL-16).
    wanted, got = sorted(call.id for call in calls), sorted(result.call_id for result in results)
    if wanted == got:
        return None
    missing = set(wanted) - set(got)
    return f"tool calls without result: {', '.join(sorted(missing))}" if missing else "tool results without call"
