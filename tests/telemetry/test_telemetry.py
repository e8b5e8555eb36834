"""`[telemetry]`: runs of the service whose spans reach a collector, and what it does while it is off."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from outpost_lsp import __version__
from outpost_lsp.config import tracing
from outpost_lsp.config.schema import Settings
from outpost_lsp.config.sources import ClientSettings, load_settings
from outpost_lsp.domain.run import ReviewScope, Run
from outpost_lsp.service.checks import diagnose
from outpost_lsp.service.outpost import Outpost
from outpost_lsp.storage.layout import Layout
from outpost_lsp.telemetry import export
from tests.service.conftest import environment, folders, project
from tests.support.repositories import RealRepository
from tests.telemetry.collector import Collector

__all__ = ["environment", "folders", "project"]

KEY = "a-key-of-the-collector"


def settings(collector: Collector, **more: Any) -> dict[str, Any]:
    return {"telemetry": {"enabled": True, "endpoint": collector.endpoint, **more}}


async def reviewed(
    folders: Layout, environment: dict[str, str], project: RealRepository, given: dict[str, Any], **options: Any
) -> Run:
    """A review by the built-in reviewer, and the service closed again."""
    async with Outpost(folders, environment, **options) as outpost:
        workspace = outpost.add_workspace(project.path, client_settings=given, trusted=True)
        handle = await outpost.review(workspace, ReviewScope(scope="uncommitted"))
        return await handle.wait()


async def test_the_spans_of_a_review_reach_the_collector(
    folders: Layout, environment: dict[str, str], project: RealRepository
) -> None:
    environment["OTEL_EXPORTER_OTLP_HEADERS"] = f"x-api-key={KEY}, x-scope = team "
    with Collector() as collector:
        run = await reviewed(folders, environment, project, settings(collector))
    assert run.status == "succeeded"
    assert set(collector.paths) == {"/v1/traces"}
    assert collector.headers[0]["x-api-key"] == KEY
    assert collector.headers[0]["x-scope"] == "team"
    assert {"invoke_agent reviewer", "step 1", "chat offline", "execute_tool report_finding"} <= set(collector.names)
    assert collector.resources[0]["service.name"] == "outpost-lsp"
    assert collector.resources[0]["service.version"] == __version__
    assert b"math" not in b"".join(collector.bodies), "no content unless it is asked for"
    assert KEY.encode() not in b"".join(collector.bodies)


async def test_content_is_sent_when_it_is_asked_for(
    folders: Layout, environment: dict[str, str], project: RealRepository
) -> None:
    with Collector() as collector:
        await reviewed(folders, environment, project, settings(collector, content=True))
    assert b"math" in b"".join(collector.bodies)


async def test_the_usual_variable_names_the_collector_when_the_settings_do_not(
    folders: Layout, environment: dict[str, str], project: RealRepository
) -> None:
    with Collector() as collector:
        environment["OTEL_EXPORTER_OTLP_ENDPOINT"] = f"{collector.endpoint}/"
        await reviewed(folders, environment, project, {"telemetry": {"enabled": True}})
    assert "invoke_agent reviewer" in collector.names


@pytest.mark.parametrize(("given", "options"), [({}, {}), ({"telemetry": {"enabled": True}}, {"offline": True})])
async def test_nothing_is_sent_while_it_is_off_and_none_by_an_offline_service(
    folders: Layout, environment: dict[str, str], project: RealRepository, given: Any, options: Any
) -> None:
    with Collector() as collector:
        environment["OTEL_EXPORTER_OTLP_ENDPOINT"] = collector.endpoint
        await reviewed(folders, environment, project, given, **options)
    assert collector.bodies == []


@pytest.mark.parametrize("fault", ["away", "refuses", "redirects"])
async def test_a_collector_that_does_not_take_them_costs_spans_and_nothing_else(
    folders: Layout,
    environment: dict[str, str],
    project: RealRepository,
    fault: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with Collector() as elsewhere, Collector(400 if fault == "refuses" else 307, f"{elsewhere.endpoint}/") as collector:
        given = settings(collector)
        if fault == "away":
            given["telemetry"]["endpoint"] = "http://127.0.0.1:9"
        with caplog.at_level(logging.CRITICAL, "opentelemetry"):
            run = await reviewed(folders, environment, project, given)
    assert run.status == "succeeded"
    assert run.notes == () or "telemetry" not in " ".join(run.notes)
    assert elsewhere.bodies == [], "no redirect is followed"


def test_a_collector_that_is_away_is_not_waited_for_at_the_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(export, "_EVERY_MS", 3_600_000.0)
    sending = export.SpanExport("http://127.0.0.1:9", {})
    sending.tracer.start_span("the last").end()
    with caplog.at_level(logging.DEBUG, "opentelemetry"):
        sending.close()
    assert "cannot be reached" in caplog.text
    assert "retrying" not in caplog.text


def test_the_last_batch_reaches_a_collector_that_has_closed_the_connection_meanwhile() -> None:
    taken: list[bytes] = []

    class Leaving(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            taken.append(self.rfile.read(int(self.headers["content-length"])))
            self.close_connection = len(taken) == 2
            if not self.close_connection:
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Nobody reads it."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Leaving) as server:
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}).start()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        with export._session(url, None, None) as session:
            session.post(url, b"first", timeout=30)
            session.is_last = True
            assert session.post(url, b"last", timeout=30).status_code == 200
        server.shutdown()
    assert taken == [b"first", b"last", b"last"]


async def test_without_the_extra_a_run_says_so_and_goes_on(
    folders: Layout, environment: dict[str, str], project: RealRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracing, "_NEEDED", ("opentelemetry", "opentelemetry.not_there"))
    with Collector() as collector:
        run = await reviewed(folders, environment, project, settings(collector))
        async with Outpost(folders, environment) as outpost:
            workspace = outpost.add_workspace(project.path, client_settings=settings(collector), trusted=True)
            await workspace.ready()
            [check] = [check for check in await diagnose(outpost, workspace) if check.name == "telemetry"]
    assert run.status == "succeeded"
    assert any("pip install 'outpost-lsp[otel]'" in note for note in run.notes)
    assert check.status == "fail"
    assert "outpost-lsp[otel]" in check.detail
    assert collector.bodies == []


async def test_the_doctor_says_where_spans_go(
    folders: Layout, environment: dict[str, str], project: RealRepository
) -> None:
    with Collector() as collector:
        async with Outpost(folders, environment) as outpost:
            workspace = outpost.add_workspace(project.path, client_settings=settings(collector), trusted=True)
            await workspace.ready()
            [check] = [check for check in await diagnose(outpost, workspace) if check.name == "telemetry"]
    assert (check.status, check.detail) == ("ok", f"spans go to {collector.endpoint}, without content")


@pytest.mark.parametrize(
    "endpoint", ["collector", "http://collector.example:4318", "https://me:pw@collector.example", "ftp://localhost"]
)
def test_an_endpoint_that_is_none_is_a_fault_of_its_key(endpoint: str) -> None:
    loaded = load_settings(client=[ClientSettings("client", {"telemetry": {"endpoint": endpoint}})])
    assert len(loaded.faults) == 1
    assert "telemetry.endpoint" in str(loaded.faults[0])


def test_a_variable_that_names_no_collector_is_told_by_the_run_and_not_followed() -> None:
    with pytest.raises(Exception, match="plain http"):
        tracing.collector(Settings(), {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector.example:4318"})


@pytest.mark.parametrize("trusted", [False, True])
def test_SEC_12_a_workspace_file_sends_no_spans(tmp_path: Path, trusted: bool) -> None:
    (tmp_path / "outpost.toml").write_text('[telemetry]\nenabled = true\nendpoint = "https://collector.example"\n')
    loaded = load_settings(folder=tmp_path, trust=lambda _: tracing_trust(trusted))
    assert loaded.settings.telemetry.enabled is False
    assert [str(refusal).count("telemetry.") for refusal in loaded.refused] == [1, 1]


def tracing_trust(trusted: bool) -> Any:
    from outpost_lsp.config.trust import Trust

    return Trust(trusted, "the test says so")


def test_nothing_of_it_is_imported_while_it_is_off(project: RealRepository, private_home: Path) -> None:
    program = (
        "import asyncio, os, sys\n"
        "from pathlib import Path\n"
        "from outpost_lsp.domain.run import ReviewScope\n"
        "from outpost_lsp.service.outpost import Outpost\n"
        "from outpost_lsp.storage.layout import Layout\n"
        "async def main():\n"
        "    home = Path(sys.argv[2])\n"
        "    async with Outpost(Layout(home / 'state', home / 'cache'), dict(os.environ)) as outpost:\n"
        "        handle = await outpost.review(outpost.add_workspace(Path(sys.argv[1])), ReviewScope(scope='uncommitted'))\n"
        "        assert (await handle.wait()).status == 'succeeded'\n"
        "asyncio.run(main())\n"
        "print(sorted({name.partition('.')[0] for name in sys.modules} & {'opentelemetry', 'requests', 'google'}))\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, str(project.path), str(private_home)],
        env={"PATH": os.environ["PATH"], "HOME": str(private_home), "OUTPOST_CONFIG": os.devnull},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stdout.strip() == "[]"
