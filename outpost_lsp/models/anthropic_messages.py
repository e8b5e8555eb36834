"""Anthropic's Messages form: a request as bytes, an answer out of its events (ANT rules).

Blocks are built by index and count when they are closed; signed thinking is kept as it was received and goes back to
the same service and model only.
"""

from __future__ import annotations

from typing import Any, Final

from outpost_lsp.domain.message import Block, Message, ReasoningBlock, TextBlock, ToolCallBlock
from outpost_lsp.domain.model import ModelRequest, ModelResult, ModelSpec, ReasoningDelta, StopReason, ToolSpec
from outpost_lsp.domain.usage import Usage
from outpost_lsp.errors import configuration
from outpost_lsp.models.answer import AnswerReader, OpenCall
from outpost_lsp.models.encoding import Encoder, encoded_tools, has_reasoning, json_bytes, message_pieces
from outpost_lsp.models.faults import Faults, error_in

PATH: Final = "/messages"
_FORM = "anthropic-messages"
_EPHEMERAL = {"type": "ephemeral"}
_EFFORTS = frozenset({"low", "medium", "high", "xhigh", "max"})
_STOP_REASONS: dict[str, StopReason] = {
    "end_turn": "end",
    "stop_sequence": "end",
    "tool_use": "tool-calls",
    "max_tokens": "max-tokens",
    "model_context_window_exceeded": "max-tokens",
    "refusal": "refusal",
}
_COUNTERS = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens")


def check_model(model: ModelSpec) -> None:
    """Refuse settings that this form has no words for."""
    if model.max_output_tokens is None:
        raise configuration(f"max_output_tokens: the model {model.name} needs it; Anthropic's service asks for a limit")
    if model.reasoning is not None:
        _thinking(model.reasoning)


class AnthropicMessages:
    """The wire form of one service."""

    path = PATH

    def __init__(self, identity: str, *, cache_system: bool = False) -> None:
        self._identity = identity
        self._cache_system = cache_system

    def body(self, request: ModelRequest) -> bytes:
        """The request; only what is new since the last one is encoded."""
        check_model(ModelSpec(request.model, request.reasoning, request.max_output_tokens))
        fields: dict[str, Any] = {"model": request.model, "max_tokens": request.max_output_tokens, "stream": True}
        if request.reasoning is not None:
            fields.update(_thinking(request.reasoning))
        if request.cache:
            fields["cache_control"] = _EPHEMERAL
        if self._cache_system:
            if not request.system:
                raise configuration("cache_system: there is no system text to cache")
            fields["system"] = [{"type": "text", "text": request.system, "cache_control": _EPHEMERAL}]
        elif request.system:
            fields["system"] = request.system
        if request.messages is None:
            messages = json_bytes({"role": "user", "content": request.prompt})
        else:
            encoder = _Encoder(self._identity, request.model)
            messages = b",".join(message_pieces(request.messages, encoder.form, encoder.message))
        tools = encoded_tools(request.tools, _FORM, _encode_tool)
        return b"".join((json_bytes(fields)[:-1], tools, b',"messages":[', messages, b"]}"))

    def encoder(self, model: str) -> Encoder:
        """How a message is encoded for a model, and the name of that."""
        encoder = _Encoder(self._identity, model)
        return encoder.form, encoder.message

    def reader(self, request: ModelRequest, body: bytes, faults: Faults) -> AnswerReader:
        """What reads the answer to `request`, which was sent as `body`."""
        return MessagesReader(faults, self._identity, request.model, body)


class _Part:
    """One block while it arrives."""

    __slots__ = ("block", "closed", "kind", "pieces", "signature")

    def __init__(self, block: dict[str, Any]) -> None:
        self.block = block
        self.kind = block.get("type")
        self.pieces: list[str] = []
        self.signature: list[str] = []
        self.closed = False


class MessagesReader(AnswerReader):
    """Puts an answer together out of events."""

    def __init__(self, faults: Faults, identity: str, model: str, sent: bytes) -> None:
        super().__init__(faults, identity, model, sent)
        self._parts: dict[int, _Part] = {}
        self._usage: dict[str, Any] = {}
        self._stop_reason = ""
        self._calls = 0

    def event(self, event: dict[str, Any]) -> None:
        """Take in one event; pings and unknown types are passed over."""
        match event.get("type"):
            case "content_block_delta":
                self._delta(self._part_at(event), self.object(event.get("delta"), "delta"))
            case "content_block_start":
                self._start(event)
            case "content_block_stop":
                self._part_at(event).closed = True
            case "message_start":
                message = self.object(event.get("message"), "message")
                if type(model := message.get("model")) is str:
                    self.actual_model = model or None
                self._overlay(message.get("usage"))
            case "message_delta":
                delta = self.object(event.get("delta"), "delta")
                self._stop_reason = self.string(delta.get("stop_reason"), "stop_reason") or self._stop_reason
                self._overlay(event.get("usage"))
            case "message_stop":
                self.done = True
            case "error" | None:
                if (error := error_in(event)) is not None:
                    raise self.faults.of_error(error)

    def whole(self, body: dict[str, Any]) -> None:
        """An answer in one piece."""
        if body.get("role") != "assistant":
            raise self.faults.malformed("the message is not the assistant's")
        for index, block in enumerate(self.array(body.get("content"), "content")):
            part = self._parts[index] = _Part(self.object(block, "block"))
            part.closed = True
        self._stop_reason = self.string(body.get("stop_reason"), "stop_reason")
        if type(model := body.get("model")) is str:
            self.actual_model = model or None
        self._overlay(body.get("usage"))
        self.done = True

    def end_mark(self) -> None:
        """This form has an end of its own; a mark of another form says nothing."""

    def usage(self) -> Usage | None:
        """What was read from and written to the cache is part of the input here, beside it on the wire (ANT-04)."""
        fresh, read, created, written = (self.count(self._usage, name) for name in _COUNTERS)
        known = [number for number in (fresh, read, created) if number is not None]
        return self.checked_usage(
            input=sum(known) if known else None, output=written, cached=read, cache_created=created
        )

    def result(self) -> ModelResult:
        """The answer; whole when the service said so."""
        if not self.done:
            raise self.cut()
        stop = _STOP_REASONS.get(self._stop_reason)
        if stop is None:
            raise self.faults.malformed("its stop_reason is unknown")
        parts = [self._parts[index] for index in sorted(self._parts)]
        if stop in {"end", "tool-calls"} and not all(part.closed for part in parts):
            raise self.faults.malformed("it ends within a block")
        blocks = [self._block(part) for part in parts]
        self.check_number_of_calls(sum(isinstance(block, OpenCall) for block in blocks))
        return self.finish(blocks, stop, gave_text=any(part.kind == "text" for part in parts))

    def _part_at(self, event: dict[str, Any]) -> _Part:
        index = event.get("index")
        part = self._parts.get(index) if type(index) is int else None
        if part is None:
            raise self.faults.malformed("an event belongs to no block")
        return part

    def _start(self, event: dict[str, Any]) -> None:
        index = event.get("index")
        if type(index) is not int or index in self._parts:
            raise self.faults.malformed("a block has no place of its own")
        part = self._parts[index] = _Part(self.object(event.get("content_block"), "content_block"))
        if part.kind == "tool_use":
            self._calls += 1
            self.check_number_of_calls(self._calls)
        if part.kind == "text" and (text := self.string(part.block.get("text"), "text")):
            self.show(text)

    def _delta(self, part: _Part, delta: dict[str, Any]) -> None:
        if part.closed:
            raise self.faults.malformed("a block goes on after its end")
        kind = delta.get("type")
        if kind == "text_delta" and part.kind == "text":
            # Nearly every event of an answer is one of these.
            if piece := self.string(delta.get("text"), "text"):
                part.pieces.append(piece)
                self.show(piece)
            return
        match kind, part.kind:
            case "input_json_delta", "tool_use":
                part.pieces.append(self.string(delta.get("partial_json"), "partial_json"))
            case "thinking_delta", "thinking":
                if piece := self.string(delta.get("thinking"), "thinking"):
                    part.pieces.append(piece)
                    self.show(piece, ReasoningDelta)
            case "signature_delta", "thinking":
                part.signature.append(self.string(delta.get("signature"), "signature"))
            case (("text_delta" | "input_json_delta" | "thinking_delta" | "signature_delta"), _):
                raise self.faults.malformed("a piece does not fit its block")
            case _:
                pass  # Citations and whatever else may come beside the text.

    def _overlay(self, usage: Any) -> None:
        # The counts are running totals: the last one that was sent is the one that counts.
        known = self.object(usage, "usage")
        self._usage.update({name: known[name] for name in _COUNTERS if known.get(name) is not None})

    def _block(self, part: _Part) -> Block | OpenCall:
        block, pieces = part.block, "".join(part.pieces)
        match part.kind:
            case "text":
                return TextBlock(text=self.healed(self.string(block.get("text"), "text") + pieces))
            case "tool_use":
                call = OpenCall(self.string(block.get("id"), "id"), self.string(block.get("name"), "name"))
                call.closed = part.closed
                given = block.get("input")
                if not pieces and given:
                    call.value = self.object(given, "input")
                call.pieces.append(pieces)
                return call
            case "thinking":
                thinking = self.string(block.get("thinking"), "thinking") + pieces
                signature = self.string(block.get("signature"), "signature") + "".join(part.signature)
                signed = {"signature": signature} if signature or "signature" in block else {}
                return self.reasoning({**block, "thinking": thinking, **signed}, thinking)
            case "redacted_thinking":
                return self.reasoning(block, None)
            case _:
                raise self.faults.malformed("it has a block of an unknown type")


class _Encoder:
    """Encodes the messages of one conversation for one service and model (MODEL-08)."""

    def __init__(self, identity: str, model: str) -> None:
        self._identity = identity
        self._model = model
        self.form = f"{_FORM} {identity} {model}"

    def message(self, message: Message) -> bytes:
        if has_reasoning(message):
            return self._encode(message)
        # Without reasoning the bytes are the same for all, and are kept once for all.
        return message.encoded(_FORM, self._encode)

    def _encode(self, message: Message) -> bytes:
        content: list[Any] = [_result(block.call_id, block.content, block.is_error) for block in message.results]
        for block in message.content:
            match block:
                case TextBlock(text=text) if text.strip():
                    content.append({"type": "text", "text": text})
                case ToolCallBlock():
                    given = block.input if isinstance(block.input, dict) else {"invalid": block.input}
                    content.append({"type": "tool_use", "id": block.id, "name": block.name, "input": given})
                case ReasoningBlock(provider=self._identity, model=self._model):
                    content.append(block.data)
                case _:
                    pass
        return json_bytes({"role": message.role, "content": content}) if content else b""


def _result(call_id: str, content: str, is_error: bool | None) -> dict[str, Any]:
    wire: dict[str, Any] = {"type": "tool_result", "tool_use_id": call_id, "content": content}
    if is_error:
        wire["is_error"] = True
    return wire


def _thinking(reasoning: str) -> dict[str, Any]:
    if reasoning == "none":
        return {"thinking": {"type": "disabled"}}
    if reasoning not in _EFFORTS:
        raise configuration(
            f"reasoning: Anthropic's service knows none, low, medium, high, xhigh and max, not {reasoning}"
        )
    return {"thinking": {"type": "adaptive"}, "output_config": {"effort": reasoning}}


def _encode_tool(tool: ToolSpec) -> bytes:
    return json_bytes({"name": tool.name, "description": tool.description, "input_schema": tool.input_schema})
