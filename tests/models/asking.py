"""Asking providers in tests: three wire forms against one scripted service."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from outpost_lsp.domain.model import Completed, ModelRequest, ModelResult, Retry, StreamEvent
from outpost_lsp.errors import OutpostError
from outpost_lsp.models.anthropic import AnthropicModelProvider
from outpost_lsp.models.openai import OpenAIModelProvider
from outpost_lsp.models.service import ServiceProvider

KEY = "sk-canary-0123456789"
ASK = ModelRequest(model="small", prompt="go", max_output_tokens=500)
MakeProvider = Callable[..., ServiceProvider]


def chat(base_url: str, **options: Any) -> ServiceProvider:
    return _prompt(OpenAIModelProvider(base_url, options.pop("api_key", KEY), "chat", **options))


def responses(base_url: str, **options: Any) -> ServiceProvider:
    return _prompt(OpenAIModelProvider(base_url, options.pop("api_key", KEY), **options))


def messages(base_url: str, **options: Any) -> ServiceProvider:
    return _prompt(AnthropicModelProvider(base_url, options.pop("api_key", KEY), **options))


FORMS: list[MakeProvider] = [chat, responses, messages]


def _prompt(provider: ServiceProvider) -> ServiceProvider:
    # The least of the jitter, so that no test waits for chance; what a service asks for is still waited for.
    provider._draw = lambda low, _high: low
    return provider


async def ask(provider: ServiceProvider, request: ModelRequest = ASK) -> ModelResult:
    """The answer of a request, the connections closed."""
    events, fault = await listen(provider, request)
    if fault is not None:
        raise fault
    assert isinstance(events[-1], Completed)
    return events[-1].result


async def fault_of(provider: ServiceProvider, request: ModelRequest = ASK) -> OutpostError:
    """The fault that a request ends with."""
    events, fault = await listen(provider, request)
    assert fault is not None, events
    return fault


async def listen(
    provider: ServiceProvider, request: ModelRequest = ASK
) -> tuple[list[StreamEvent], OutpostError | None]:
    """All events of a request, and its fault if it has one."""
    events: list[StreamEvent] = []
    try:
        async for event in provider.stream(request):
            events.append(event)
    except OutpostError as fault:
        return events, fault
    finally:
        await provider.aclose()
    return events, None


def retries(events: list[StreamEvent]) -> list[Retry]:
    return [event for event in events if isinstance(event, Retry)]
