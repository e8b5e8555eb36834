"""Model servers that run on this machine: the usual ports are asked which models they have, and nothing else is sent.

A port may belong to anything: what does not answer like such a server within moments is none. Used by first-run set-up.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import anyio
import httpx

_PATIENCE_S: Final = 2.0
_LONGEST_ANSWER: Final = 1024 * 1024
_EMBEDDING: Final = "embed"


@dataclass(frozen=True, slots=True)
class LocalPlace:
    """Where a kind of server listens unless it is told otherwise. `base_url` is that of its OpenAI-compatible API."""

    name: str
    title: str
    base_url: str


USUAL_PLACES: Final = (
    LocalPlace("ollama", "Ollama", "http://127.0.0.1:11434/v1"),
    LocalPlace("lm-studio", "LM Studio", "http://127.0.0.1:1234/v1"),
    LocalPlace("llama-cpp", "llama.cpp", "http://127.0.0.1:8080/v1"),
    LocalPlace("vllm", "vLLM", "http://127.0.0.1:8000/v1"),
)


@dataclass(frozen=True, slots=True)
class LocalServer:
    """A server that answered. `models` can write texts; those for embeddings are left out."""

    place: LocalPlace
    models: tuple[str, ...]


async def find_local_servers(places: Sequence[LocalPlace] = USUAL_PLACES) -> list[LocalServer]:
    """The servers that answer now and have a model, in the order of `places`."""
    found: dict[LocalPlace, LocalServer] = {}

    async def ask(client: httpx.AsyncClient, place: LocalPlace) -> None:
        models = await _models(client, place)
        if models:
            found[place] = LocalServer(place, models)

    async with httpx.AsyncClient(trust_env=False, follow_redirects=False, timeout=_PATIENCE_S) as client:
        with anyio.move_on_after(2 * _PATIENCE_S):
            async with anyio.create_task_group() as tasks:
                for place in places:
                    tasks.start_soon(ask, client, place)
    return [found[place] for place in places if place in found]


async def _models(client: httpx.AsyncClient, place: LocalPlace) -> tuple[str, ...]:
    content = bytearray()
    try:
        async with client.stream("GET", f"{place.base_url}/models") as answer:
            if answer.status_code != 200:
                return ()
            async for piece in answer.aiter_bytes():
                content += piece
                if len(content) > _LONGEST_ANSWER:
                    return ()
        listed = json.loads(content)["data"]
        names = [one["id"] for one in listed]
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError, TypeError, RecursionError):
        return ()
    return tuple(name for name in names if isinstance(name, str) and name.isprintable() and _EMBEDDING not in name)
