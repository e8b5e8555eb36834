"""Fixtures of the language server's tests: a repository with uncommitted work, and settings for a loopback service."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

from tests.support.model_server import ModelServer
from tests.support.repositories import RealRepository


@pytest.fixture
def benchmark_guard() -> Callable[[float], AbstractContextManager[None]]:
    """Bounds the time of a block, far above what it needs on a busy machine."""

    @contextmanager
    def guard(limit_s: float) -> Iterator[None]:
        start = time.process_time()
        yield
        assert time.process_time() - start < limit_s

    return guard


@pytest.fixture
def changed(repository: RealRepository) -> RealRepository:
    """A repository in which `src/main.py` has an uncommitted change."""
    repository.write("src/main.py", 'print("hello")\nvalue = "\U0001f600\u4e2d"; total = count + 1\nprint(total)\n')
    return repository


@pytest.fixture
def service() -> Iterator[ModelServer]:
    """A loopback model service that is told what to say."""
    with ModelServer() as server:
        yield server


def settings_for(service: ModelServer, api: str = "chat", **more: Any) -> dict[str, Any]:
    """Settings under which every agent asks the loopback service."""
    kind = "anthropic" if api == "messages" else "openai"
    provider: dict[str, Any] = {"kind": kind, "baseUrl": service.base_url, "apiKeyEnv": "SERVICE_KEY"}
    if kind == "openai":
        provider["api"] = api
    return {
        "providers": {"local": provider},
        "models": {"small": {"provider": "local", "name": "small", "maxOutputTokens": 1000}},
        "defaultModel": "small",
        **more,
    }


FINDING = {
    "path": "src/main.py",
    "quote": "total = count + 1",
    "severity": "error",
    "code": "undefined-name",
    "title": "count is not defined",
    "detail": "It raises `NameError`.",
    "replacement": "total = 1",
    "line": 1,
}
"""What a model reports about the changed repository; the line is wrong, the quote decides."""


def reporting(**changes: Any) -> dict[str, Any]:
    """A call that reports a finding."""
    return {"name": "report_finding", "input": FINDING | changes}
