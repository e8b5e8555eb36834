"""The provider for Anthropic's service and for servers that speak its form."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from outpost_lsp.domain.model import ModelSpec
from outpost_lsp.models.anthropic_messages import PATH, AnthropicMessages, check_model
from outpost_lsp.models.endpoint import DEFAULT_CONNECT_TIMEOUT_S, DEFAULT_MAX_RESPONSE_BYTES, Endpoint, Key, KeySource
from outpost_lsp.models.http import Headers
from outpost_lsp.models.service import ServiceProvider

DEFAULT_BASE_URL = "https://api.anthropic.com/v1"


class AnthropicModelProvider(ServiceProvider):
    """Speaks `POST <base_url>/messages`.

    Models need `max_output_tokens`. `cache_system` marks the system text for the service's cache, beside the requests'
    own `cache`. The other options are those of `OpenAIModelProvider`; this service has no use without a key.
    """

    def __init__(
        self,
        base_url: str = DEFAULT_BASE_URL,
        api_key: KeySource = None,
        *,
        cache_system: bool = False,
        timeout_s: float | None = None,
        connect_timeout_s: float = DEFAULT_CONNECT_TIMEOUT_S,
        max_retries: int = 2,
        max_response_bytes: int = DEFAULT_MAX_RESPONSE_BYTES,
        ca_file: str | Path | None = None,
        proxy: str | None = None,
        name: str = "anthropic",
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
        key = Key(name, api_key, required=True)
        super().__init__(endpoint, key, partial(AnthropicMessages, cache_system=cache_system), PATH, _headers)

    def validate(self, model: ModelSpec) -> None:
        """Refuse a model without `max_output_tokens`, and reasoning that the service has no word for."""
        check_model(model)


def _headers(key: str | None) -> Headers:
    version = (b"anthropic-version", b"2023-06-01")
    return (version,) if key is None else ((b"x-api-key", key.encode("ascii")), version)
