"""The contract of a model provider: what is asked, what is answered, and how it streams (MODEL rules)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from outpost_lsp.domain.message import Block, Message, TextBlock, ToolCallBlock, validate_messages
from outpost_lsp.domain.record import Declaration, NonBlank, PositiveInt
from outpost_lsp.domain.usage import Usage
from outpost_lsp.errors import OutpostError

Reasoning = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
StopReason = Literal["end", "tool-calls", "max-tokens", "refusal"]


class ModelSpec(Declaration):
    """A conversational model: its service name and the settings that apply while it is the active one."""

    name: NonBlank
    reasoning: Reasoning | None = None
    max_output_tokens: PositiveInt | None = None
    context_window: PositiveInt | None = None
    """In tokens; drives compaction (CTX-09)."""

    def __init__(
        self,
        name: str,
        reasoning: Reasoning | None = None,
        max_output_tokens: int | None = None,
        context_window: int | None = None,
    ) -> None:
        super().__init__(
            name=name, reasoning=reasoning, max_output_tokens=max_output_tokens, context_window=context_window
        )

    @classmethod
    def of(cls, model: str | ModelSpec) -> ModelSpec:
        """The spec itself, or the one that a bare name is shorthand for."""
        return model if isinstance(model, ModelSpec) else cls(model)


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as the model sees it."""

    name: str
    description: str
    input_schema: Mapping[str, Any]
    _wire: dict[str, bytes] = field(default_factory=dict, compare=False, repr=False)

    def encoded(self, form: str, encode: Callable[[ToolSpec], bytes]) -> bytes:
        """The bytes of this tool in the wire form named `form`, made once."""
        found = self._wire.get(form)
        if found is None:
            found = self._wire[form] = encode(self)
        return found


class _RequestType(type):
    """Makes a field that no request has the same fault as a wrong one (MODEL-03)."""

    def __call__(cls, *arguments: Any, **fields: Any) -> Any:
        if unknown := next((name for name in fields if name not in cls.__dataclass_fields__), None):  # type: ignore[attr-defined]
            raise OutpostError("configuration", f"model request: there is no field {unknown}")
        return super().__call__(*arguments, **fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest(metaclass=_RequestType):
    """One request. Exactly one of `prompt` and `messages`; the harness always sends its `History`."""

    model: str
    messages: Sequence[Message] | None = None
    prompt: str | None = None
    system: str | None = None
    tools: tuple[ToolSpec, ...] = ()
    reasoning: Reasoning | None = None
    max_output_tokens: int | None = None
    cache: bool = False

    def __post_init__(self) -> None:
        if (self.messages is None) == (self.prompt is None):
            raise OutpostError("configuration", "model request: exactly one of prompt and messages")
        if self.prompt is not None and not self.prompt.strip():
            raise OutpostError("configuration", "model request: the prompt is blank")
        if self.messages is not None:
            validate_messages(self.messages)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelResult:
    """A whole answer. `content` and `stop_reason` may be absent: `blocks` and `reason` fill them in."""

    text: str = ""
    content: tuple[Block, ...] | None = None
    stop_reason: StopReason | None = None
    usage: Usage | None = None
    model: str | None = None
    """The model that really answered, as the service names it."""

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The content, or one text block made of `text` (LOOP-10)."""
        return self.content if self.content is not None else (TextBlock(text=self.text),)

    @property
    def reason(self) -> StopReason:
        """The stop reason, inferred when absent (LOOP-11)."""
        if self.stop_reason is not None:
            return self.stop_reason
        return "tool-calls" if any(isinstance(block, ToolCallBlock) for block in self.blocks) else "end"


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the visible text. A provider may join the pieces that arrived in one read."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """A readable piece of the model's reasoning."""

    text: str


@dataclass(frozen=True, slots=True)
class Retry:
    """The provider tries again; what was shown of the cut answer is void (HTTP-06).

    `usage` is what the cut attempt reported, a lower bound.
    """

    attempt: int
    message: str | None = None
    wait_s: float = 0.0
    usage: Usage | None = None


@dataclass(frozen=True, slots=True)
class Completed:
    """The last event of a stream: the whole answer."""

    result: ModelResult


StreamEvent = TextDelta | ReasoningDelta | Retry | Completed


class ModelProvider(Protocol):
    """A service that answers a prompt.

    `identity` tells two services of one kind apart (MODEL-09). `stream` yields events and exactly one `Completed`,
    last. Cancelling the task that iterates it closes the connection. `validate` refuses a model the service cannot
    serve with a `configuration` fault, without any request.
    """

    @property
    def name(self) -> str: ...

    @property
    def identity(self) -> str: ...

    def stream(self, request: ModelRequest, /) -> AsyncIterator[StreamEvent]: ...

    def validate(self, model: ModelSpec, /) -> None: ...


@runtime_checkable
class Closable(Protocol):
    """A provider that keeps connections; whoever made it closes it."""

    async def aclose(self) -> None: ...
