"""OpenAI's Chat Completions form: a request as bytes, an answer out of its chunks (OAC rules).

Local services speak this form with an accent: calls that share an index, ids that are null or repeated, arguments as an
object, parts that are null. All of that is understood; what is cut is never taken for whole.
"""

from __future__ import annotations

from typing import Any, Final

from outpost_lsp.domain.message import Message, TextBlock, ToolCallBlock
from outpost_lsp.domain.model import ModelRequest, ModelResult, ReasoningDelta, StopReason, ToolSpec
from outpost_lsp.domain.usage import Usage
from outpost_lsp.models.answer import AnswerReader, OpenCall, decoded_input
from outpost_lsp.models.encoding import Encoder, arguments_text, encoded_tools, json_bytes, message_pieces
from outpost_lsp.models.faults import Faults, error_in

PATH: Final = "/chat/completions"
_FORM = "openai-chat"
_STOP_REASONS: dict[str, StopReason] = {
    "stop": "end",
    "tool_calls": "tool-calls",
    "length": "max-tokens",
    "content_filter": "refusal",
}


class OpenAIChat:
    """The wire form of one service."""

    path = PATH

    def __init__(self, identity: str) -> None:
        self._identity = identity

    def body(self, request: ModelRequest) -> bytes:
        """The request; only what is new since the last one is encoded."""
        fields: dict[str, Any] = {"model": request.model, "stream": True, "stream_options": {"include_usage": True}}
        if request.max_output_tokens is not None:
            fields["max_completion_tokens"] = request.max_output_tokens
        if request.reasoning is not None:
            fields["reasoning_effort"] = request.reasoning
        messages = []
        if request.system:
            messages.append(json_bytes({"role": "system", "content": request.system}))
        if request.messages is None:
            messages.append(json_bytes({"role": "user", "content": request.prompt}))
        else:
            messages.extend(message_pieces(request.messages, _FORM, _encode_message))
        tools = encoded_tools(request.tools, _FORM, _encode_tool)
        return b"".join((json_bytes(fields)[:-1], tools, b',"messages":[', b",".join(messages), b"]}"))

    def encoder(self, _model: str) -> Encoder:
        """How a message is encoded, and the name of that."""
        return _FORM, _encode_message

    def reader(self, request: ModelRequest, body: bytes, faults: Faults) -> AnswerReader:
        """What reads the answer to `request`, which was sent as `body`."""
        return ChatReader(faults, self._identity, request.model, body)


class ChatReader(AnswerReader):
    """Puts an answer together out of chunks."""

    def __init__(self, faults: Faults, identity: str, model: str, sent: bytes) -> None:
        super().__init__(faults, identity, model, sent)
        self._text: list[str] = []
        self._gave_text = False
        self._refused = False
        self._calls: list[OpenCall] = []
        self._by_index: dict[int, OpenCall] = {}
        self._finish_reason = ""
        self._usage: dict[str, Any] | None = None

    def event(self, event: dict[str, Any]) -> None:
        """Take in one chunk."""
        if ("error" in event or event.get("object") == "error") and (error := error_in(event)) is not None:
            raise self.faults.of_error(error)
        if (usage := event.get("usage")) is not None:
            self._usage = self.object(usage, "usage")
        choices = event.get("choices")
        if not choices:
            return
        if type(choices) is not list or len(choices) != 1 or type(choices[0]) is not dict:
            raise self.faults.malformed("exactly one choice is expected")
        choice = choices[0]
        if self.actual_model is None and type(model := event.get("model")) is str:
            self.actual_model = model or None
        delta = choice.get("delta")
        if type(delta) is dict and len(delta) == 1 and type(piece := delta.get("content")) is str and piece:
            # Nearly every chunk of an answer is one of these.
            self._gave_text = True
            self._text.append(piece)
            self.show(piece)
        elif delta is not None:
            self._delta(self.object(delta, "delta"))
        if reason := choice.get("finish_reason"):
            self._finish_reason = self.string(reason, "finish_reason")

    def whole(self, body: dict[str, Any]) -> None:
        """An answer in one piece is one chunk whose message stands where the delta stands."""
        choices = self.array(body.get("choices"), "choices")
        if len(choices) != 1:
            raise self.faults.malformed("exactly one choice is expected")
        choice = self.object(choices[0], "choice")
        if self.object(choice.get("message"), "message").get("role") != "assistant":
            raise self.faults.malformed("the message is not the assistant's")
        self.event({**body, "choices": [{**choice, "delta": choice["message"]}]})
        self.done = bool(self._finish_reason)

    def usage(self) -> Usage | None:
        """Prompt and completion tokens; cached ones are part of the prompt (OAC-03)."""
        usage = self._usage
        if usage is None:
            return None
        return self.checked_usage(
            input=self.count(usage, "prompt_tokens"),
            output=self.count(usage, "completion_tokens"),
            cached=self.count(
                self.object(usage.get("prompt_tokens_details"), "prompt_tokens_details"), "cached_tokens"
            ),
        )

    def result(self) -> ModelResult:
        """The answer; whole with a finish reason, or when the service said that it is (OAC-04)."""
        if not self._finish_reason and not (self.done and self.events):
            raise self.cut()
        stop = _STOP_REASONS.get(self._finish_reason or "stop")
        if stop is None:
            raise self.faults.malformed("its finish_reason is unknown")
        if self._refused and stop != "max-tokens":
            stop = "refusal"
        for call in self._calls:
            call.closed = True
        text = TextBlock(text=self.healed("".join(self._text)))
        return self.finish([text, *self._calls], stop, gave_text=self._gave_text)

    def _delta(self, delta: dict[str, Any]) -> None:
        content = delta.get("content")
        if content is not None:
            if type(content) is not str:
                raise self.faults.malformed("content is not a text")
            self._gave_text = True
            if content:
                self._text.append(content)
                self.show(content)
        if calls := delta.get("tool_calls"):
            for part in self.array(calls, "tool_calls"):
                if part is not None:
                    self._call_part(self.object(part, "tool call"))
        thought = delta.get("reasoning_content") or delta.get("reasoning")
        if thought and type(thought) is str:
            self.show(thought, ReasoningDelta)
        if (role := delta.get("role")) and role != "assistant":
            raise self.faults.malformed("the message is not the assistant's")
        if delta.get("refusal"):
            self._refused = True
        if delta.get("function_call"):
            raise self.faults.malformed("it uses the old function_call; a newer service is needed")

    def _call_part(self, part: dict[str, Any]) -> None:
        function = self.object(part.get("function"), "function")
        id, name = self.string(part.get("id"), "id"), self.string(function.get("name"), "name")
        arguments, index = function.get("arguments"), part.get("index")
        if index is not None and type(index) is not int:
            raise self.faults.malformed("the index of a tool call is not a number")
        latest = self._calls[-1] if self._calls else None
        call = latest if index is None else self._by_index.get(index)
        if call is None or _begins_another(call, id, name, arguments):
            call = OpenCall()
            self._calls.append(call)
            self.check_number_of_calls(len(self._calls))
        if index is not None:
            self._by_index[index] = call
        call.id = call.id or id
        call.name = call.name or name
        if type(arguments) is str:
            call.pieces.append(arguments)
        elif type(arguments) is dict:
            call.value = arguments
        elif arguments is not None:
            raise self.faults.malformed("the arguments of a tool call are neither a text nor an object")


def _begins_another(call: OpenCall, id: str, name: str, arguments: Any) -> bool:
    if id and call.id and id != call.id:
        return True
    if not name or not call.name:
        return False
    if name != call.name:
        return True
    # The name again: some services repeat it in each part, others begin a second call of the same tool with it.
    return bool(arguments) and (call.value is not None or type(decoded_input("".join(call.pieces) or "?")) is dict)


def _encode_message(message: Message) -> bytes:
    if message.role == "assistant":
        return _encode_assistant(message)
    parts: list[dict[str, Any]] = [
        {"role": "tool", "tool_call_id": result.call_id, "content": result.content} for result in message.results
    ]
    texts = [block.text for block in message.content if isinstance(block, TextBlock)]
    if len(texts) == 1:
        parts.append({"role": "user", "content": texts[0]})
    elif texts:
        parts.append({"role": "user", "content": [{"type": "text", "text": text} for text in texts]})
    return json_bytes(parts)[1:-1]


def _encode_assistant(message: Message) -> bytes:
    calls = [_encode_call(call) for call in message.calls]
    if not calls and not message.text:
        return b""
    wire: dict[str, Any] = {"role": "assistant", "content": message.text or None}
    if calls:
        wire["tool_calls"] = calls
    return json_bytes(wire)


def _encode_call(call: ToolCallBlock) -> dict[str, Any]:
    function = {"name": call.name, "arguments": arguments_text(call.input)}
    return {"id": call.id, "type": "function", "function": function}


def _encode_tool(tool: ToolSpec) -> bytes:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.input_schema}
    return json_bytes({"type": "function", "function": function})
