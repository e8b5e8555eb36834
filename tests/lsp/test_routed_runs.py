"""Scenario B through the language server: what the client is told agrees with the log of the services themselves."""

from __future__ import annotations

from typing import Any

from outpost_lsp.protocol.notifications import NOTIFICATIONS
from tests.lsp.conftest import reporting, settings_for
from tests.lsp.server_process import ServerProcess, running_server
from tests.support.model_answers import Answer
from tests.support.model_server import ModelServer
from tests.support.repositories import RealRepository
from tests.support.system_one_server import Reply, SystemOneServer, answer, http, routed

READ = {"name": "read_file", "input": {"path": "src/main.py"}}
UNKNOWN = {"input": 0, "cached": 0, "output": 0, "complete": False}


def settings(service: ModelServer, router: SystemOneServer, **routing: Any) -> dict[str, Any]:
    table = {
        "decider": "router",
        "model": "auto",
        "question": "route",
        "instructions": "Choose the model depth for the next step.",
        "criteria": {"fast": "Routine tools", "deep": "Reasoning or repairs"},
        "models": {"fast": "quick", "deep": "large"},
        "minConfidence": 0.85,
        "fallback": "deep",
        "onError": "fallback",
    }
    models = {
        "quick": {"provider": "local", "name": "quick", "maxOutputTokens": 2000},
        "large": {"provider": "local", "name": "large", "maxOutputTokens": 8000},
    }
    return settings_for(
        service,
        models=models,
        defaultModel="large",
        deciders={"router": {"kind": "system-one", "baseUrl": router.base_url, "apiKeyEnv": ""}},
        routing={"depth": {**table, **routing}},
        agents={"reviewer": {"routing": "depth"}},
    )


def told(server: ServerProcess, method: str) -> list[Any]:
    found = server.all(method)
    for params in found:
        NOTIFICATIONS[method].params.model_validate(params)
    return found


async def test_scenario_B_routes_and_usage_agree_with_the_services(
    changed: RealRepository, service: ModelServer
) -> None:
    """ROUTE-03, -04, -30, -31, -36, -40, -41, -43, -52: kept, doubted and missing answers, one after the other."""
    replies: list[Reply] = [
        answer(routed("fast", 0.9)),
        answer(routed("fast", 0.84)),
        http(b"", 503),
        answer(routed("deep", 0.99)),
    ]
    service.add(
        Answer(calls=[READ], usage={"input": 40, "output": 4}),
        Answer(calls=[reporting(confidence=0.75)], usage={"input": 50, "cached": 10, "output": 5}),
        Answer(calls=[READ], usage={"input": 60, "output": 6}),
        Answer(text="Done.", usage={"input": 70, "output": 7}),
    )
    with SystemOneServer(replies) as router:
        async with running_server() as server:
            await server.initialize(changed.path, options={"settings": settings(service, router)})
            run = (await server.command("outpost.review", {"wait": True}))["run"]
            shown = await server.command("outpost.show", {"runId": run["id"]})
            uri = (changed.path / "src/main.py").as_uri()
            server.open(uri, (changed.path / "src/main.py").read_text("utf-8"))
            [finding] = (await server.command("outpost.findings"))["findings"]
            hover = await server.request(
                "textDocument/hover", {"textDocument": {"uri": uri}, "position": finding["range"]["start"]}
            )
            routes, used = told(server, "$/outpost/route"), told(server, "$/outpost/usage")
            order = [
                one["method"] for one in server.received if one.get("method") in ("$/outpost/route", "$/outpost/usage")
            ]
    assert run["status"] == "succeeded"
    [down] = [note for note in run["notes"] if note.startswith("routing: ")]
    assert "503" in down, "whoever reads of the run learns why the fallback took a step"
    asked = [(request.json["model"], request.json["max_completion_tokens"]) for request in service.requests]
    assert asked == [("quick", 2000), ("large", 8000), ("large", 8000), ("large", 8000)]
    assert [(one["choice"], one["model"], one["reason"], one.get("confidence")) for one in routes] == [
        ("fast", "quick", "selected", 0.9),
        ("deep", "large", "confidence", 0.84),
        ("deep", "large", "unavailable", None),
        ("deep", "large", "selected", 0.99),
    ]
    assert [one["model"] for one in routes] == [model for model, _ in asked], "as the model service was asked"
    assert len(router.requests) == len(routes) == 4, "one request a step, no retry"
    assert [request.json["state"]["step"] for request in router.requests] == [one["step"] for one in routes]
    assert [request.json["state"]["model"] for request in router.requests] == ["large", "quick", "large", "large"]
    # Each step: the receipt of the router, the route, the receipt of the model.
    assert order == ["$/outpost/usage", "$/outpost/route", "$/outpost/usage"] * 4

    decisions = [one["delta"] for one in used if one["source"] == "decision"]
    assert [one["model"] for one in used if one["source"] == "decision"] == ["auto"] * 4
    receipt = {"input": 12, "cached": 0, "output": 3, "complete": True}
    assert decisions == [receipt, receipt, UNKNOWN, receipt], "unknown is told as unknown"
    answers = [one["delta"] for one in used if one["source"] == "model"]
    assert [(one["input"], one["cached"], one["output"]) for one in answers] == [
        (40, 0, 4),
        (50, 10, 5),
        (60, 0, 6),
        (70, 0, 7),
    ]
    total = {"input": 220 + 36, "cached": 10, "output": 22 + 9, "complete": False}
    assert used[-1]["total"] == run["usage"] == total

    assert [(one["step"], one["choice"], one["reason"]) for one in shown["routes"]] == [
        (one["step"], one["choice"], one["reason"]) for one in routes
    ]
    text = str(hover["contents"])
    assert "route deep" in text
    assert "model large" in text
    assert "confidence 0.75" in text


async def test_a_focused_state_sends_the_last_texts_only(changed: RealRepository, service: ModelServer) -> None:
    service.add(Answer(text="I look.", calls=[READ]), "Done.")
    with SystemOneServer([answer(routed("fast"))]) as router:
        async with running_server() as server:
            await server.initialize(changed.path, options={"settings": settings(service, router, state="focused")})
            run = (await server.command("outpost.review", {"wait": True}))["run"]
    assert run["status"] == "succeeded"
    states = [request.json["state"] for request in router.requests]
    assert [set(state) for state in states] == [{"step", "activeModel", "recentText"}] * 2
    assert [state["activeModel"] for state in states] == ["large", "quick"]
    assert states[1]["recentText"][-1] == "I look."


async def test_ROUTE_32_33_faults_that_are_no_outage_end_the_run_before_the_model_is_asked(
    changed: RealRepository, service: ModelServer
) -> None:
    cases: list[tuple[Reply, str, str]] = [
        (http(b"", 429, {"Retry-After": "5"}), "fallback", "quota"),
        (http(b"", 401), "fallback", "provider"),
        (answer(routed("fast", truncated=True)), "fallback", "response"),
        (answer({"error": "no"}), "fallback", "response"),
        (answer({"detail": "state too large (60000 > 50000 chars)"}, 413), "fallback", "provider"),
        (http(b"", 503), "fail", "provider"),
    ]
    with SystemOneServer([reply for reply, _, _ in cases]) as router:
        given = settings(service, router)
        given["routing"]["strict"] = {**given["routing"]["depth"], "onError": "fail"}
        given["agents"]["strict"] = {"tools": [], "routing": "strict"}
        async with running_server() as server:
            await server.initialize(changed.path, options={"settings": given})
            for number, (_, policy, code) in enumerate(cases, 1):
                agent = "strict" if policy == "fail" else "reviewer"
                asked = {"agent": agent, "brief": "Look.", "wait": True}
                run = (await server.command("outpost.dispatch", asked))["run"]
                assert (run["status"], run["error"]["code"]) == ("failed", code), number
                assert len(router.requests) == number, "never a retry"
                if number == 5:
                    assert "reduced state" in run["error"]["message"], "the fault names the remedy"
            assert told(server, "$/outpost/route") == []
            assert [one["source"] for one in told(server, "$/outpost/usage")] == ["decision"] * len(cases)
    assert service.requests == []
