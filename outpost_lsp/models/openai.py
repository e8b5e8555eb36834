"""The provider for OpenAI's service and for every server that speaks one of its two forms."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from outpost_lsp.errors import configuration
from outpost_lsp.models import openai_chat, openai_responses
from outpost_lsp.models.endpoint import DEFAULT_CONNECT_TIMEOUT_S, DEFAULT_MAX_RESPONSE_BYTES, Endpoint, Key, KeySource
from outpost_lsp.models.http import Headers
from outpost_lsp.models.service import ServiceProvider

OpenAIApi = Literal["responses", "chat"]


class OpenAIModelProvider(ServiceProvider):
    """Speaks `POST <base_url>/responses`, or with ``api="chat"`` `POST <base_url>/chat/completions`.

    `api_key` is the key, `False` or `None` for a service without authentication, or a function (plain or coroutine)
    that returns the key and is called at each request. `timeout_s` bounds silence, before the first byte and between
    bytes; left out, it is 120 s, and 300 s for requests whose reasoning is high or above. Connecting has a limit of its
    own. `max_response_bytes` bounds one event; a whole answer may have eight times that. `ca_file` holds certificates to trust besides the system's;
    without `proxy` the usual proxy variables of the environment apply, and never to a service on this machine.
    """

    def __init__(
        self,
        base_url: str,
        api_key: KeySource,
        api: OpenAIApi = "responses",
        *,
        timeout_s: float | None = None,
        connect_timeout_s: float = DEFAULT_CONNECT_TIMEOUT_S,
        max_retries: int = 2,
        max_response_bytes: int = DEFAULT_MAX_RESPONSE_BYTES,
        ca_file: str | Path | None = None,
        proxy: str | None = None,
        name: str = "openai",
    ) -> None:
        endpoint = Endpoint(
            name=name,
            base_url=base_url,
            timeout_s=timeout_s,
            connect_timeout_s=connect_timeout_s,
            max_retries=max_retries,
            max_response_bytes=max_response_bytes,
            ca_file=None if ca_file is None else str(ca_file),
            proxy=proxy,
        )
        key = Key(name, api_key, required=False)
        match api:
            case "responses":
                super().__init__(endpoint, key, openai_responses.OpenAIResponses, openai_responses.PATH, _bearer)
            case "chat":
                super().__init__(endpoint, key, openai_chat.OpenAIChat, openai_chat.PATH, _bearer)
            case _:
                raise configuration('api: "responses" or "chat" is expected')


def _bearer(key: str | None) -> Headers:
    return () if key is None else ((b"Authorization", b"Bearer " + key.encode("ascii")),)
