"""What a loopback model service answers, and how each of the three wire forms says it.

`Answer` is what a test writes; `Answer.from_json` reads the same from a script file. `wire_events` turns one into the
events of a form and `wire_body` into a plain body for a request that does not stream.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

FORMS = {"/chat/completions": "chat", "/responses": "responses", "/messages": "messages"}
_DEFAULT_USAGE = {"input": 10, "output": 5}
_CHAT_STOPS = {"end": "stop", "tool-calls": "tool_calls", "max-tokens": "length", "refusal": "content_filter"}
_ANTHROPIC_STOPS = {"end": "end_turn", "tool-calls": "tool_use", "max-tokens": "max_tokens", "refusal": "refusal"}


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One answer. Everything has a default, so a test names only what it is about."""

    text: str = ""
    calls: Sequence[Mapping[str, Any]] = ()
    """Tool calls: `name`, `input` (an object, or a text that is sent as it is) and, if it matters, `id`."""
    reasoning: str = ""
    usage: Mapping[str, int] | None = field(default_factory=lambda: dict(_DEFAULT_USAGE))
    """`input`, `output`, `cached`, `cache_created` in the neutral way of counting; `None`: not reported."""
    stop: str | None = None
    """`end`, `tool-calls`, `max-tokens` or `refusal`; by default what fits the calls."""
    pieces: int = 3
    """In how many deltas the text and each call's input are sent."""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | str | None = None
    """A plain body in place of the stream."""
    json: Any = None
    """A JSON body in place of the stream."""
    raw: bytes | None = None
    """The whole HTTP answer, head included, byte for byte; chunks are written one by one, as they were cut."""
    error: Mapping[str, Any] | None = None
    """An error event after the pieces, in place of the end."""
    cut_after: int | None = None
    """Close the connection after so many events, without the end of the body."""
    reset_after: int | None = None
    """The same with a TCP reset."""
    hang_after: int | None = None
    """Say nothing more after so many events, until the client leaves."""
    silent: bool = False
    """Take the request and never answer."""
    delay_s: float = 0.0
    """Before the first byte."""
    hold: str = ""
    """Before the first byte wait until this name was let go: `ModelServer.release`."""
    pause_s: float = 0.0
    """Before each event (and each byte with `byte_by_byte`)."""
    byte_by_byte: bool = False
    keep_open: bool = False
    """After the last event leave the body unfinished and the connection open."""
    when: Mapping[str, Any] = field(default_factory=dict)
    """Only for requests with this `model`, `path`, number of tool `results`, or text it `contains` in the body."""
    times: int = 1
    """How often it serves; 0: for ever."""

    @classmethod
    def from_json(cls, value: str | Mapping[str, Any], folder: Path | None = None) -> Answer:
        """An answer of a script file: a text, or an object with the names above.

        Bytes come as `raw_file` (a path, from the script's folder) or `raw_base64`.
        """
        if isinstance(value, str):
            return cls(text=value)
        given = dict(value)
        if "raw_file" in given:
            given["raw"] = ((folder or Path.cwd()) / given.pop("raw_file")).read_bytes()
        if "raw_base64" in given:
            given["raw"] = base64.b64decode(given.pop("raw_base64"))
        unknown = set(given) - {known.name for known in fields(cls)}
        if unknown:
            raise ValueError(f"an answer has no {', '.join(sorted(unknown))}")
        return cls(**given)

    @property
    def reason(self) -> str:
        return self.stop or ("tool-calls" if self.calls else "end")


def wire_events(form: str, answer: Answer, number: int, model: str) -> Iterator[bytes]:
    """The events of `answer` in `form`, each a whole frame. `number` makes the ids of its calls."""
    say = {"chat": _chat, "responses": _responses, "messages": _messages}[form]
    for event in say(answer, number, model):
        if isinstance(event, bytes):
            yield event
            continue
        name = f"event: {event['type']}\n" if form != "chat" else ""
        yield f"{name}data: {json.dumps(event, ensure_ascii=False)}\n\n".encode()


def wire_body(form: str, answer: Answer, number: int, model: str) -> dict[str, Any]:
    """The same answer in one piece."""
    if form == "responses":
        return _response(answer, number, model)
    if form == "messages":
        return {
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": _anthropic_blocks(answer, number),
            "stop_reason": _ANTHROPIC_STOPS[answer.reason],
            "usage": _anthropic_usage(answer),
        }
    message = {"role": "assistant", "content": answer.text or None}
    if answer.calls:
        message["tool_calls"] = [_chat_call(call, number, at) for at, call in enumerate(answer.calls)]
    choice = {"index": 0, "message": message, "finish_reason": _CHAT_STOPS[answer.reason]}
    return {"object": "chat.completion", "model": model, "choices": [choice], "usage": _chat_usage(answer)}


def call_id(call: Mapping[str, Any], number: int, at: int) -> str:
    """The id that the service gives to a call."""
    return call.get("id", f"call_{number:04d}_{at:02d}_of_the_scripted_service")


def _cut(text: str, pieces: int) -> list[str]:
    size = max(1, -(-len(text) // max(1, pieces)))
    return [text[at : at + size] for at in range(0, len(text), size)]


def _input_text(call: Mapping[str, Any]) -> str:
    given = call.get("input", {})
    return given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)


def _chat(answer: Answer, number: int, model: str) -> Iterator[Any]:
    def chunk(delta: Mapping[str, Any], finish: str | None = None) -> dict[str, Any]:
        choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
        return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": model, "choices": choices}

    yield chunk({"role": "assistant", "content": None if answer.calls and not answer.text else ""})
    for piece in _cut(answer.reasoning, answer.pieces):
        yield chunk({"reasoning_content": piece})
    for piece in _cut(answer.text, answer.pieces):
        yield chunk({"content": piece})
    for at, call in enumerate(answer.calls):
        first = {"index": at, "id": call_id(call, number, at), "type": "function"}
        yield chunk({"tool_calls": [{**first, "function": {"name": call["name"], "arguments": ""}}]})
        for piece in _cut(_input_text(call), answer.pieces):
            yield chunk({"tool_calls": [{"index": at, "function": {"arguments": piece}}]})
    if answer.error is not None:
        yield b"data: " + json.dumps({"error": answer.error}).encode() + b"\n\n"
        return
    yield chunk({}, _CHAT_STOPS[answer.reason])
    if answer.usage is not None:
        yield {**chunk({}), "choices": [], "usage": _chat_usage(answer)}
    yield b"data: [DONE]\n\n"


def _chat_call(call: Mapping[str, Any], number: int, at: int) -> dict[str, Any]:
    function = {"name": call["name"], "arguments": _input_text(call)}
    return {"id": call_id(call, number, at), "type": "function", "function": function}


def _chat_usage(answer: Answer) -> dict[str, Any] | None:
    usage = answer.usage
    if usage is None:
        return None
    wire: dict[str, Any] = {"prompt_tokens": usage["input"], "completion_tokens": usage["output"]}
    if "cached" in usage:
        wire["prompt_tokens_details"] = {"cached_tokens": usage["cached"]}
    return wire


def _responses(answer: Answer, number: int, model: str) -> Iterator[Any]:
    empty = {"id": "resp_1", "object": "response", "model": model, "status": "in_progress", "output": [], "error": None}
    yield {"type": "response.created", "response": empty}
    for piece in _cut(answer.reasoning, answer.pieces):
        yield {"type": "response.reasoning_summary_text.delta", "delta": piece}
    for piece in _cut(answer.text, answer.pieces):
        yield {"type": "response.output_text.delta", "delta": piece}
    final = _response(answer, number, model)
    for at, item in enumerate(final["output"]):
        yield {"type": "response.output_item.added", "output_index": at, "item": {"type": item["type"]}}
        if item["type"] == "function_call":
            for piece in _cut(item["arguments"], answer.pieces):
                yield {"type": "response.function_call_arguments.delta", "output_index": at, "delta": piece}
        yield {"type": "response.output_item.done", "output_index": at, "item": item}
    if answer.error is not None:
        yield {**answer.error, "code": answer.error.get("code", answer.error.get("type")), "type": "error"}
        return
    yield {"type": f"response.{final['status']}", "response": final}


def _response(answer: Answer, number: int, model: str) -> dict[str, Any]:
    output: list[dict[str, Any]] = []
    if answer.reasoning:
        summary = [{"type": "summary_text", "text": answer.reasoning}]
        output.append({"id": f"rs_{number}", "type": "reasoning", "summary": summary, "encrypted_content": "c2VjcmV0"})
    if answer.reason == "refusal":
        part: dict[str, Any] = {"type": "refusal", "refusal": answer.text or "no"}
        output.append({"type": "message", "role": "assistant", "content": [part]})
    elif answer.text:
        part = {"type": "output_text", "text": answer.text, "annotations": []}
        output.append({"type": "message", "role": "assistant", "content": [part]})
    for at, call in enumerate(answer.calls):
        id = call_id(call, number, at)
        item = {"type": "function_call", "call_id": id, "name": call["name"], "arguments": _input_text(call)}
        output.append({**item, "status": "completed"})
    full = answer.reason == "max-tokens"
    return {
        "id": "resp_1",
        "object": "response",
        "model": model,
        "error": None,
        "status": "incomplete" if full else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if full else None,
        "output": output,
        "usage": _responses_usage(answer),
    }


def _responses_usage(answer: Answer) -> dict[str, Any] | None:
    usage = answer.usage
    if usage is None:
        return None
    cached = {"cached_tokens": usage.get("cached", 0)}
    return {"input_tokens": usage["input"], "input_tokens_details": cached, "output_tokens": usage["output"]}


def _messages(answer: Answer, number: int, model: str) -> Iterator[Any]:
    usage = _anthropic_usage(answer)
    begun = None if usage is None else {**usage, "output_tokens": 1}
    head = {"type": "message", "role": "assistant", "model": model, "content": [], "usage": begun}
    yield {"type": "message_start", "message": head}
    yield {"type": "ping"}
    for at, block in enumerate(_anthropic_blocks(answer, number)):
        empty, deltas = _anthropic_deltas(block, answer.pieces)
        yield {"type": "content_block_start", "index": at, "content_block": empty}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": at, "delta": delta}
        yield {"type": "content_block_stop", "index": at}
    if answer.error is not None:
        yield {"type": "error", "error": answer.error}
        return
    stop = {"stop_reason": _ANTHROPIC_STOPS[answer.reason], "stop_sequence": None}
    totals = None if usage is None else {"output_tokens": usage["output_tokens"]}
    yield {"type": "message_delta", "delta": stop, "usage": totals}
    yield {"type": "message_stop"}


def _anthropic_blocks(answer: Answer, number: int) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    if answer.reasoning:
        blocks.append({"type": "thinking", "thinking": answer.reasoning, "signature": "c2lnbmVk"})
    if answer.text:
        blocks.append({"type": "text", "text": answer.text})
    for at, call in enumerate(answer.calls):
        given = call.get("input", {})
        blocks.append({"type": "tool_use", "id": call_id(call, number, at), "name": call["name"], "input": given})
    return blocks


def _anthropic_deltas(block: dict[str, Any], pieces: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    if block["type"] == "text":
        deltas = [{"type": "text_delta", "text": piece} for piece in _cut(block["text"], pieces)]
        return {"type": "text", "text": ""}, deltas
    if block["type"] == "thinking":
        deltas = [{"type": "thinking_delta", "thinking": piece} for piece in _cut(block["thinking"], pieces)]
        deltas.append({"type": "signature_delta", "signature": block["signature"]})
        return {"type": "thinking", "thinking": "", "signature": ""}, deltas
    deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in _cut(_input_text(block), pieces)]
    return {**block, "input": {}}, deltas


def _anthropic_usage(answer: Answer) -> dict[str, Any] | None:
    usage = answer.usage
    if usage is None:
        return None
    cached, created = usage.get("cached", 0), usage.get("cache_created", 0)
    return {
        "input_tokens": usage["input"] - cached - created,
        "cache_read_input_tokens": cached,
        "cache_creation_input_tokens": created,
        "output_tokens": usage["output"],
    }
