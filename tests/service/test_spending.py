"""What was used, by day, agent and model: told from journals, else from records, and never zero when unknown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from outpost_lsp.cli.spending import csv_row, table
from outpost_lsp.cli.terminal import Paint
from outpost_lsp.domain.price import ModelPriceTable
from outpost_lsp.domain.run import Run
from outpost_lsp.domain.usage import UNKNOWN, ZERO, ModelUsage, Usage
from outpost_lsp.service.spending import spending

PRICES = ModelPriceTable("USD", {"small": {"input": 1.0, "output": 10.0}})


def run(id: str, usage: Usage = ZERO, *, agent: str = "coordinator", **more: Any) -> Run:
    known: dict[str, Any] = {
        "kind": "review",
        "agent": agent,
        "title": "A review",
        "status": "succeeded",
        "workspace": "/project",
        "started_at": "2026-03-05T12:00:00.000Z",
    }
    return Run(id=id, usage=usage, **(known | more))


def tokens(input: int, output: int, model: str = "small") -> Usage:
    return Usage(input=input, output=output).attributed(model)


def journal(path: Path, *events: dict[str, Any]) -> Path:
    head = {"at": "2026-03-05T12:00:00.000Z", "source": "agent", "scope": {}}
    path.write_text("".join(json.dumps({"seq": n, **head, "event": one}) + "\n" for n, one in enumerate(events)))
    return path


def test_a_journal_says_which_agent_spent_what(tmp_path: Path) -> None:
    told = journal(
        tmp_path / "a.jsonl",
        {"kind": "usage", "tokens": {"input": 100, "output": 10}, "model": "small"},
        {"kind": "subagent", "id": "s1", "name": "reviewer", "callId": "c", "status": "started"},
        {"kind": "usage", "subagentId": "s1", "tokens": {"input": 50, "output": 5}, "model": "large"},
        {"kind": "usage", "tokens": {"input": 7, "output": 1}, "model": "small"},
    )
    whole = tokens(107, 11) + tokens(50, 5, "large")
    lines = spending([run("a", whole)], {"a": told}, PRICES)
    assert [(one.agent, one.model, one.usage.input, one.usage.output) for one in lines] == [
        ("coordinator", "small", 107, 11),
        ("reviewer", "large", 50, 5),
    ]
    assert csv_row(lines[0])[8:] == ("0.000217", "USD")
    assert csv_row(lines[1])[8:] == ("", ""), "a model without a price costs an unknown amount, not nothing"


def test_a_journal_that_is_cut_mangled_or_missing_leaves_everything_to_the_runs_agent(tmp_path: Path) -> None:
    cut = journal(tmp_path / "cut.jsonl", {"kind": "usage", "tokens": {"input": 1, "output": 1}, "model": "small"})
    odd = journal(tmp_path / "odd.jsonl", {"kind": "usage", "tokens": "many", "model": "small"})
    for path in (cut, odd, tmp_path / "gone.jsonl"):
        [line] = spending([run("a", tokens(10, 2))], {"a": path}, PRICES)
        assert (line.agent, line.usage.input, line.usage.output) == ("coordinator", 10, 2)


def test_runs_of_one_day_add_up_by_agent_and_model_and_replays_spend_nothing() -> None:
    lines = spending(
        [
            run("a", tokens(10, 1)),
            run("b", tokens(20, 2)),
            run("c", tokens(5, 5), agent="fixer"),
            run("d", tokens(9, 9), started_at="2026-03-07T12:00:00.000Z"),
            run("e", tokens(99, 99), kind="replay"),
            run("f"),
        ],
        {},
        PRICES,
    )
    assert [(one.day, one.agent, one.usage.input, len(one.runs)) for one in lines] == [
        ("2026-03-05", "coordinator", 30, 2),
        ("2026-03-05", "fixer", 5, 1),
        ("2026-03-07", "coordinator", 9, 1),
    ]


def test_what_nobody_reported_is_unknown_in_every_form_and_never_zero() -> None:
    silent = UNKNOWN.attributed("small")
    half = tokens(10, 1) + silent
    for usage, tokens_text, cost_text in ((silent, "unknown", "unknown"), (half, ">=10", ">=0.0000 USD")):
        [line] = spending([run("a", usage)], {}, PRICES)
        _, row, together = table([line], Paint(colour=False))
        assert tokens_text in row
        assert row.endswith(cost_text)
        assert "at least" in together
        assert csv_row(line)[7] == "false"
    [line] = spending([run("a", silent)], {}, PRICES)
    assert csv_row(line)[4:] == ("", "", "", "false", "", "")
    assert not list(table([], Paint(colour=False)))


def test_a_decision_model_is_told_with_the_one_that_answered_and_priced_by_the_one_that_was_asked(
    tmp_path: Path,
) -> None:
    told = journal(
        tmp_path / "a.jsonl",
        {"kind": "decision", "status": "started", "provider": "system-one", "model": "auto"},
        {"kind": "usage", "tokens": {"input": 80, "output": 0}, "model": "auto", "source": "router"},
        {"kind": "decision", "status": "finished", "provider": "system-one", "model": "laya-rl-agent"},
        {"kind": "usage", "tokens": {"input": 10, "output": 1}, "model": "small"},
        {"kind": "subagent", "id": "s1", "name": "reviewer", "callId": "c", "status": "started"},
        {"kind": "decision", "status": "started", "provider": "rules", "model": "rules", "subagentId": "s1"},
        {"kind": "usage", "tokens": {"input": 5, "output": 1}, "model": "rules", "subagentId": "s1"},
        {"kind": "decision", "status": "finished", "provider": "rules", "model": "rules", "subagentId": "s1"},
    )
    prices = ModelPriceTable("USD", {"auto": {"input": 1.0, "output": 1.0}, "small": {"input": 1.0, "output": 10.0}})
    whole = tokens(80, 0, "auto") + tokens(10, 1) + tokens(5, 1, "rules")
    lines = spending([run("a", whole)], {"a": told}, prices)
    assert [(one.model, one.answered) for one in lines] == [
        ("auto", {"laya-rl-agent"}),
        ("small", set()),
        ("rules", set()),
    ]
    assert csv_row(lines[0])[2] == "auto"
    assert csv_row(lines[0])[8:] == ("0.000080", "USD")
    assert "auto (answered: laya-rl-agent)" in list(table(lines, Paint(colour=False)))[1]


def test_without_any_price_no_cost_is_told() -> None:
    [line] = spending([run("a", tokens(10, 1))], {}, None)
    assert csv_row(line) == ("2026-03-05", "coordinator", "small", "1", "10", "0", "1", "true", "", "")
    assert list(table([line], Paint(colour=False)))[1].endswith("unknown")


def test_a_service_that_counts_its_cache_outside_the_input_is_counted_as_it_says() -> None:
    part = ModelUsage(input=10, cached=500, output=1, input_includes_cache=False)
    usage = Usage(input=10, cached=500, output=1, models={"small": part})
    [line] = spending([run("a", usage)], {}, PRICES)
    assert (line.usage.input, line.usage.cached) == (10, 500)


def test_tokens_that_no_model_accounts_for_have_a_line_of_their_own_without_a_cost() -> None:
    usage = Usage(input=15, output=2, models={"small": ModelUsage(input=10, output=2)})
    lines = spending([run("a", usage)], {}, PRICES)
    assert [(one.model, one.usage.input, one.cost is None) for one in lines] == [("", 5, True), ("small", 10, False)]


def test_the_built_in_rules_use_nothing_and_cost_nothing_for_certain() -> None:
    [line] = spending([run("a", tokens(0, 0, "offline"))], {}, None)
    assert csv_row(line)[4:] == ("0", "0", "0", "true", "0", "")
    _, row, together = table([line], Paint(colour=False))
    assert row.endswith("none")
    assert together.endswith("cost none")
