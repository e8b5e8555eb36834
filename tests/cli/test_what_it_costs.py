"""The estimate and the question before a review of everything by a model that has a price."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from outpost_lsp.config.schema import Settings
from outpost_lsp.service.estimates import Estimate, estimate
from tests.cli.conftest import Program
from tests.cli.test_terminal import terminal
from tests.support.model_server import ModelServer
from tests.support.repositories import RealRepository

PRICE = "price = { input = 1000.0, output = 8.0 }\n"


@pytest.fixture
def service(program: Program) -> Iterator[ModelServer]:
    with ModelServer(["Nothing to report."]) as server:
        program.use_model(server.base_url, more=PRICE)
        yield server


def test_where_nobody_can_be_asked_it_says_what_goes_on_and_starts_nothing(
    program: Program, project: RealRepository, service: ModelServer
) -> None:
    ended = program("review", "--all", cwd=project.path)
    assert (ended.status, ended.out, service.requests) == (2, "", [])
    assert "reviewing 2 files means reading about 10 tokens once, at about 0.01 USD with small" in ended.err
    assert "--yes goes on" in ended.err
    assert program("runs", "--json", cwd=project.path).json == []
    assert program("review", "--all", "--yes", cwd=project.path).status == 0
    assert len(service.requests) == 1


def test_a_change_and_a_review_without_a_service_are_never_asked_about(
    program: Program, project: RealRepository, service: ModelServer
) -> None:
    assert program("review", cwd=project.path).status == 0
    assert len(service.requests) == 1
    assert program("review", "--all", "--offline", cwd=project.path).status == 1
    assert len(service.requests) == 1


@pytest.mark.parametrize(("answer", "status"), [("y", 0), ("", 130)])
def test_a_person_at_the_terminal_is_asked_and_only_yes_goes_on(
    program: Program, project: RealRepository, service: ModelServer, answer: str, status: int
) -> None:
    with terminal(program, "review", "--all", cwd=project.path) as screen:
        screen.until("Go on? [y/N]")
        screen.type(answer)
        assert screen.ended() == status
        text = screen.text
    assert len(service.requests) == (1 if answer else 0)
    assert ("the review was not started" in text) is not bool(answer)


def settings(**agents: object) -> Settings:
    return Settings.model_validate(
        {
            "default_model": "cheap",
            "providers": {"one": {"kind": "openai"}, "offline": {"kind": "offline"}},
            "models": {
                "cheap": {"provider": "one", "name": "service-cheap", "price": {"input": 1.0, "output": 2.0}},
                "dear": {"provider": "one", "name": "service-dear", "price": {"input": 10.0, "output": 20.0}},
                "secret": {"provider": "one", "name": "service-secret"},
                "offline": {"provider": "offline", "name": "offline"},
            },
            "routing": {
                "depth": {
                    "decider": "rules",
                    "criteria": {"fast": "a", "deep": "b"},
                    "models": {"fast": "cheap", "deep": "dear"},
                    "fallback": "deep",
                }
            },
            "deciders": {"rules": {"kind": "rules"}},
            "agents": agents,
        }
    )


def test_every_model_that_may_be_used_counts_and_one_without_a_price_is_never_free() -> None:
    known = settings(
        top={"routing": "depth", "subagents": ["below", "top"]},
        below={"model": "secret"},
        either={"candidates": ["free", "below"]},
        free={"model": "offline"},
    )
    cost = estimate(known, "top", 3, 4_000_000)
    assert cost == Estimate(3, 1_000_000, (("service-cheap", 1.0), ("service-dear", 10.0)), ("service-secret",), "USD")
    assert cost is not None
    assert "1.00 USD with service-cheap, 10.00 USD with service-dear" in cost.text
    assert "service-secret may be used too, at a price nobody named" in cost.text
    assert estimate(known, "free", 3, 4_000_000) is None
    assert estimate(known, "either", 3, 4_000_000) is None, "nobody named a price, so nothing can be told"
