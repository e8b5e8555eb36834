"""A review with delegation against a mock of model services that others made, in each of the three wire forms."""

from __future__ import annotations

import json
import os
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from outpost_lsp.config.prices import price_table
from outpost_lsp.domain.run import ReviewScope
from outpost_lsp.service.outpost import Outpost
from outpost_lsp.service.spending import spending
from outpost_lsp.storage.layout import Layout
from tests.support.repositories import make_repository

FORMS = {
    "responses": ('kind = "openai"\napi = "responses"', "/v1/responses"),
    "chat": ('kind = "openai"\napi = "chat"', "/v1/chat/completions"),
    "messages": ('kind = "anthropic"', "/v1/messages"),
}


def _requests(aimock: str, path: str) -> list[dict[str, Any]]:
    with urllib.request.urlopen(f"{aimock}/__aimock/journal?path={path}", timeout=30) as answer:
        told = json.load(answer)
    entries = told if isinstance(told, list) else told["entries"]
    return [entry for entry in entries if entry["path"] == path]


@pytest.mark.parametrize("form", FORMS)
async def test_a_delegated_review_runs_to_its_end_against_a_third_partys_mock(
    aimock: str, tmp_path: Path, form: str
) -> None:
    provider, path = FORMS[form]
    repository = make_repository(
        tmp_path / "project", {"shop/orders.py": "import math\n\n\ndef area(r):\n    return math.pi * r\n"}
    )
    repository.write("shop/orders.py", "def area(r):\n    return math.pi * r\n")
    before = repository.state()
    config = tmp_path / "config.toml"
    config.write_text(
        f'default_model = "main"\n[providers.mock]\n{provider}\nbase_url = "{aimock}/v1"\napi_key_env = "MOCK_KEY"\n'
        '[models.main]\nprovider = "mock"\nname = "gpt-4o"\nmax_output_tokens = 2000\n'
        "price = { input = 2.0, output = 8.0 }\n"
    )
    environment = {"PATH": os.environ["PATH"], "OUTPOST_CONFIG": str(config), "MOCK_KEY": "mock-key-of-the-test"}
    earlier = len(_requests(aimock, path))
    async with Outpost(Layout(state=tmp_path / "state", cache=tmp_path / "cache"), environment) as outpost:
        workspace = outpost.add_workspace(repository.path)
        handle = await outpost.review(workspace, ReviewScope(), agent="coordinator")
        await handle.wait()
        run = handle.run
        told = outpost.timeline(run.id)
        journal = {run.id: workspace.journal_path(run.id)}
        lines = spending([run], journal, price_table(workspace.settings))
    assert run.status == "succeeded", run.error
    assert run.text == "The reviewer found one fault: math is not imported."
    [finding] = handle.findings.values()
    assert (finding.agent, finding.path, finding.code) == ("reviewer", "shop/orders.py", "undefined-name")
    assert finding.span.start_line == 1, "the quote decides, not the line that the model guessed"
    assert [(one.name, one.status) for one in told.subagents] == [("reviewer", "finished")]
    assert run.usage.is_complete
    assert (run.usage.input, run.usage.output) == (510, 60), "what the mock reports of five answers, each counted once"
    assert run.cost is not None
    assert run.cost.complete
    assert run.cost.amount == pytest.approx((510 * 2.0 + 60 * 8.0) / 1_000_000)
    assert [(line.agent, line.usage.input, line.usage.output) for line in lines] == [
        ("coordinator", 207, 27),
        ("reviewer", 303, 33),
    ]
    assert len(_requests(aimock, path)) - earlier == 5, "two of the coordinator, three of the reviewer"
    assert repository.state() == before
