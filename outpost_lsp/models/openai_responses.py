"""OpenAI's Responses form: a request as bytes, an answer out of its events (OAR rules).

Nothing is stored at the service: reasoning comes back to us as items, is kept as it was received, and goes out again to
the same service and model only. The final object is the answer; where a service leaves its output empty, the items that
it sent one by one stand in for it.
"""

from __future__ import annotations

from typing import Any, Final

from outpost_lsp.domain.message import Block, Message, ReasoningBlock, TextBlock, ToolCallBlock
from outpost_lsp.domain.model import ModelRequest, ModelResult, ReasoningDelta, StopReason, ToolSpec
from outpost_lsp.domain.usage import Usage
from outpost_lsp.models.answer import AnswerReader, OpenCall
from outpost_lsp.models.encoding import (
    Encoder,
    arguments_text,
    encoded_tools,
    has_reasoning,
    json_bytes,
    message_pieces,
)
from outpost_lsp.models.faults import Faults, error_in

PATH: Final = "/responses"
_FORM = "openai-responses"
_REASONING_EVENTS = frozenset({"response.reasoning_summary_text.delta", "response.reasoning_text.delta"})
_FINAL_EVENTS = frozenset({"response.completed", "response.incomplete"})
_INCOMPLETE: dict[str, StopReason] = {"max_output_tokens": "max-tokens", "content_filter": "refusal"}


class OpenAIResponses:
    """The wire form of one service."""

    path = PATH

    def __init__(self, identity: str) -> None:
        self._identity = identity

    def body(self, request: ModelRequest) -> bytes:
        """The request; only what is new since the last one is encoded."""
        fields: dict[str, Any] = {"model": request.model, "store": False, "stream": True}
        if request.system:
            fields["instructions"] = request.system
        if request.max_output_tokens is not None:
            fields["max_output_tokens"] = request.max_output_tokens
        if request.reasoning is not None:
            fields["reasoning"] = {"effort": request.reasoning}
            # Nothing is stored there, so the reasoning must travel with its items (OAR-06).
            fields["include"] = ["reasoning.encrypted_content"]
        if request.messages is None:
            sent = json_bytes(request.prompt)
        else:
            encoder = _Encoder(self._identity, request.model)
            sent = b"[" + b",".join(message_pieces(request.messages, encoder.form, encoder.message)) + b"]"
        tools = encoded_tools(request.tools, _FORM, _encode_tool)
        return b"".join((json_bytes(fields)[:-1], tools, b',"input":', sent, b"}"))

    def encoder(self, model: str) -> Encoder:
        """How a message is encoded for a model, and the name of that."""
        encoder = _Encoder(self._identity, model)
        return encoder.form, encoder.message

    def reader(self, request: ModelRequest, body: bytes, faults: Faults) -> AnswerReader:
        """What reads the answer to `request`, which was sent as `body`."""
        return ResponsesReader(faults, self._identity, request.model, body)


class ResponsesReader(AnswerReader):
    """Puts an answer together out of events."""

    def __init__(self, faults: Faults, identity: str, model: str, sent: bytes) -> None:
        super().__init__(faults, identity, model, sent)
        self._items: dict[int, dict[str, Any]] = {}
        self._text: list[str] = []
        self._final: dict[str, Any] | None = None
        self._usage: dict[str, Any] | None = None

    def event(self, event: dict[str, Any]) -> None:
        """Take in one event; unknown types are passed over."""
        kind = event.get("type")
        if kind == "response.output_text.delta":
            if piece := self.string(event.get("delta"), "delta"):
                self._text.append(piece)
                self.show(piece)
        elif kind in _FINAL_EVENTS:
            self.whole(self.object(event.get("response"), "response"))
        elif kind == "response.output_item.done":
            index = event.get("output_index")
            self._items[index if type(index) is int else len(self._items)] = self.object(event.get("item"), "item")
        elif kind in _REASONING_EVENTS:
            if piece := self.string(event.get("delta"), "delta"):
                self.show(piece, ReasoningDelta)
        elif kind == "response.failed":
            response = self.object(event.get("response"), "response")
            self._note(response)
            raise self.faults.of_error(self.object(response.get("error"), "error"))
        elif kind in {"response.created", "response.in_progress"}:
            self._note(self.object(event.get("response"), "response"))
        elif (kind == "error" or kind is None) and (error := error_in(event)) is not None:
            raise self.faults.of_error(error)

    def whole(self, body: dict[str, Any]) -> None:
        """The final object, which also stands alone when the service does not stream."""
        self._note(body)
        if body.get("status") == "failed" and type(error := body.get("error")) is dict:
            raise self.faults.of_error(error)
        self._final = body
        self.done = True

    def usage(self) -> Usage | None:
        """Input and output tokens; cached ones are part of the input (OAR-04)."""
        usage = self._usage
        if usage is None:
            return None
        details = self.object(usage.get("input_tokens_details"), "input_tokens_details")
        return self.checked_usage(
            input=self.count(usage, "input_tokens"),
            output=self.count(usage, "output_tokens"),
            cached=self.count(details, "cached_tokens"),
        )

    def result(self) -> ModelResult:
        """The answer in the final object (OAR-01 to OAR-03)."""
        final = self._final
        if final is None:
            raise self.cut()
        if final.get("error") is not None:
            raise self.faults.malformed("it is complete and an error at once")
        if type(output := final.get("output")) is not list:
            raise self.faults.malformed("output is not an array")
        status = final.get("status")
        if status == "completed":
            stop: StopReason = "end"
        elif status == "incomplete":
            stop = self._incomplete(self.object(final.get("incomplete_details"), "incomplete_details"))
        else:
            raise self.faults.malformed("its status is neither completed nor incomplete")
        items = output or [self._items[index] for index in sorted(self._items)]
        blocks: list[Block | OpenCall] = []
        refused = [self._add_item(self.object(item, "item"), blocks) for item in items]
        if not items and self._text:
            blocks.append(TextBlock(text=self.healed("".join(self._text))))
        self.check_number_of_calls(sum(isinstance(block, OpenCall) for block in blocks))
        if any(refused) and stop != "max-tokens":
            stop = "refusal"
        return self.finish(blocks, stop, gave_text=any(isinstance(block, TextBlock) for block in blocks))

    def _note(self, response: dict[str, Any]) -> None:
        if (usage := response.get("usage")) is not None:
            self._usage = self.object(usage, "usage")
        if type(model := response.get("model")) is str:
            self.actual_model = model or None

    def _incomplete(self, details: dict[str, Any]) -> StopReason:
        stop = _INCOMPLETE.get(self.string(details.get("reason"), "reason"))
        if stop is None:
            raise self.faults.malformed("it is incomplete for an unknown reason")
        return stop

    def _add_item(self, item: dict[str, Any], blocks: list[Block | OpenCall]) -> bool:
        """Add the blocks of one item; the answer is whether it refuses."""
        match item.get("type"):
            case "reasoning":
                blocks.append(self.reasoning(item, self._summary(item)))
            case "function_call":
                blocks.append(self._call_of(item))
            case "message":
                if item.get("role") != "assistant":
                    raise self.faults.malformed("a message is not the assistant's")
                return self._add_parts(item, blocks)
            case _:
                raise self.faults.malformed("it has an item of an unknown type")
        return False

    def _add_parts(self, item: dict[str, Any], blocks: list[Block | OpenCall]) -> bool:
        refused = False
        for entry in self.array(item.get("content"), "content"):
            part = self.object(entry, "part")
            match part.get("type"):
                case "output_text":
                    blocks.append(TextBlock(text=self.healed(self.string(part.get("text"), "text"))))
                case "refusal":
                    refused = True
                case _:
                    raise self.faults.malformed("a message has a part of an unknown type")
        return refused

    def _call_of(self, item: dict[str, Any]) -> OpenCall:
        call = OpenCall(
            self.string(item.get("call_id"), "call_id"),
            self.string(item.get("name"), "name"),
            closed=item.get("status") in {None, "completed"},
        )
        if type(arguments := item.get("arguments")) is dict:
            call.value = arguments
        else:
            call.pieces.append(self.string(arguments, "arguments"))
        return call

    def _summary(self, item: dict[str, Any]) -> str:
        parts = self.array(item.get("summary"), "summary") or self.array(item.get("content"), "content")
        texts = (part.get("text") for part in parts if type(part) is dict)
        return "\n".join(text for text in texts if type(text) is str and text)


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
        items: list[Any] = [
            {"type": "function_call_output", "call_id": result.call_id, "output": result.content}
            for result in message.results
        ]
        for block in message.content:
            match block:
                case TextBlock(text=text) if text:
                    items.append({"role": message.role, "content": text})
                case ToolCallBlock():
                    items.append(
                        {
                            "type": "function_call",
                            "call_id": block.id,
                            "name": block.name,
                            "arguments": arguments_text(block.input),
                        }
                    )
                case ReasoningBlock() if self._takes(block):
                    items.append(block.data)
                case _:
                    pass
        return json_bytes(items)[1:-1]

    def _takes(self, block: ReasoningBlock) -> bool:
        if (block.provider, block.model) != (self._identity, self._model):
            return False
        # An item that holds nothing but its id would have to be looked up at the service, which stored nothing.
        data = block.data
        return any(data.get(name) for name in ("encrypted_content", "content", "summary"))


def _encode_tool(tool: ToolSpec) -> bytes:
    return json_bytes(
        {
            "type": "function",
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.input_schema,
        }
    )
