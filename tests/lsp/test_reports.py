"""The report of a run, as an editor shows it: it lists what the run's count of findings says."""

from __future__ import annotations

from tests.lsp.conftest import reporting, settings_for
from tests.lsp.server_inside import inside_server
from tests.support.model_answers import Answer
from tests.support.model_server import ModelServer
from tests.support.repositories import RealRepository


async def test_the_report_of_a_run_tells_what_became_of_each_of_its_findings(changed: RealRepository) -> None:
    abilities = {"workspace": {"textDocumentContent": {}}}
    async with inside_server() as server:
        await server.initialize(changed.path, capabilities=abilities)
        first, last = [(await server.command("outpost.review", {"wait": True}))["run"] for _ in range(2)]
        assert first["findings"] == last["findings"] == 1
        texts = [
            (await server.request("workspace/textDocumentContent", {"uri": f"outpost:/runs/{run['id']}/report.md"}))[
                "text"
            ]
            for run in (first, last)
        ]
        assert [text.count("## error: ") for text in texts] == [1, 1]
        assert f"src/main.py:2, when it was reported (replaced by the finding of run {last['id']})" in texts[0]
        assert "src/main.py:2 (open)" in texts[1]


async def test_the_report_lists_a_finding_that_is_shown_together_with_another_agents(
    changed: RealRepository, service: ModelServer
) -> None:
    settings = settings_for(service, agents={"second": {"tools": ["files", "findings"]}})
    service.add(Answer(calls=[reporting()]), "Done.", Answer(calls=[reporting()]), "Done.")
    async with inside_server() as server:
        await server.initialize(
            changed.path,
            options={"settings": settings},
            capabilities={"workspace": {"textDocumentContent": {}}},
        )
        runs = [
            (await server.command("outpost.review", {"wait": True, "agent": agent}))["run"]
            for agent in ("reviewer", "second")
        ]
        assert [run["findings"] for run in runs] == [1, 1]
        assert len((await server.command("outpost.findings"))["findings"]) == 1
        for run in runs:
            uri = f"outpost:/runs/{run['id']}/report.md"
            text = (await server.request("workspace/textDocumentContent", {"uri": uri}))["text"]
            assert "## error: count is not defined" in text
