"""Fixtures of the language server's tests."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest


@pytest.fixture
def benchmark_guard() -> Callable[[float], AbstractContextManager[None]]:
    """Bounds the time of a block, far above what it needs on a busy machine."""

    @contextmanager
    def guard(limit_s: float) -> Iterator[None]:
        start = time.process_time()
        yield
        assert time.process_time() - start < limit_s

    return guard
