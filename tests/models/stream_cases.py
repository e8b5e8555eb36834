"""The stream cases: whole HTTP answers, their bodies, and what must come of each."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from outpost_lsp.domain.model import ModelRequest, ModelResult
from outpost_lsp.errors import OutpostError
from outpost_lsp.models.answer import AnswerReader
from outpost_lsp.models.anthropic import AnthropicModelProvider
from outpost_lsp.models.anthropic_messages import AnthropicMessages
from outpost_lsp.models.faults import Faults
from outpost_lsp.models.http import read_remainder
from outpost_lsp.models.openai import OpenAIModelProvider
from outpost_lsp.models.openai_chat import OpenAIChat
from outpost_lsp.models.openai_responses import OpenAIResponses
from outpost_lsp.models.service import ServiceProvider
from outpost_lsp.models.sse import EventSplitter, EventTooLargeError

FOLDER = Path(__file__).parent.parent / "cases" / "streams"
REQUEST = ModelRequest(model="case-model", prompt="go", max_output_tokens=1000)
LIMIT = 8 * 1024 * 1024
_FORMS: dict[str, type[OpenAIChat | OpenAIResponses | AnthropicMessages]] = {
    "openai-chat": OpenAIChat,
    "openai-responses": OpenAIResponses,
    "anthropic-messages": AnthropicMessages,
}


@dataclass(frozen=True)
class StreamCase:
    """One case of the folder."""

    name: str

    @cached_property
    def expected(self) -> dict[str, Any]:
        return json.loads((FOLDER / f"{self.name}.expected.json").read_text("utf-8"))

    @cached_property
    def body(self) -> bytes:
        return (FOLDER / f"{self.name}.body").read_bytes()

    @cached_property
    def http(self) -> bytes:
        return (FOLDER / f"{self.name}.http").read_bytes()

    def reader(self) -> AnswerReader:
        return reader_for(self.expected["dialect"])

    def provider(self, base_url: str, **options: Any) -> ServiceProvider:
        match self.expected["dialect"]:
            case "anthropic-messages":
                return AnthropicModelProvider(base_url, "case-key", **options)
            case "openai-responses":
                return OpenAIModelProvider(base_url, "case-key", **options)
            case _:
                return OpenAIModelProvider(base_url, "case-key", "chat", **options)


CASES = [StreamCase(path.name.removesuffix(".expected.json")) for path in sorted(FOLDER.glob("*.expected.json"))]


def reader_for(dialect: str) -> AnswerReader:
    form = _FORMS[dialect]("identity")
    return form.reader(REQUEST, b"{}", Faults("case", "http://127.0.0.1:1/v1"))


def outcome(reader: AnswerReader, pieces: Iterable[bytes], *, json_body: bool = False) -> ModelResult | OutpostError:
    """What comes of a body that arrives in these pieces, as the door to the network feeds it."""
    try:
        _feed(reader, pieces, json_body=json_body)
        return reader.result()
    except OutpostError as fault:
        return fault


def _feed(reader: AnswerReader, pieces: Iterable[bytes], *, json_body: bool) -> None:
    if json_body:
        reader.read_whole(b"".join(pieces))
        return
    splitter = EventSplitter(LIMIT)
    try:
        for piece in pieces:
            for payload in splitter.feed(piece):
                reader.read(payload)
                if reader.done:
                    return
    except EventTooLargeError:
        raise reader.faults.too_large("one event", "the limit") from None
    read_remainder(splitter.remainder(), reader)
