"""The doctor (DOC-04): what is looked at, how it is judged, and what it never does."""

from __future__ import annotations

import json
import time
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any

import pytest

from outpost_lsp.decisions.rules import RULES, shipped_record
from outpost_lsp.domain.run import ReviewScope
from outpost_lsp.service import checks
from outpost_lsp.service.checks import Check, diagnose
from outpost_lsp.service.outpost import Outpost
from outpost_lsp.storage.layout import Layout
from outpost_lsp.storage.locks import LockFolder
from tests.service.conftest import Office, loopback
from tests.support.model_server import ModelServer
from tests.support.repositories import RealRepository


async def looked_at(office: Office, project: RealRepository, settings: Any = None) -> dict[str, Check]:
    workspace = await office.workspace(project, settings)
    return {check.name: check for check in await diagnose(office.outpost, workspace)}


async def test_DOC_04_a_healthy_workspace_has_no_failure_and_nothing_stays(
    office: Office, project: RealRepository
) -> None:
    before = project.state()
    with ModelServer(["never"]) as server:
        found = await looked_at(office, project, loopback(server.base_url))
        assert server.requests == []
    assert [check for check in found.values() if check.status == "fail"] == []
    wanted = {
        "git",
        "repository",
        "worktree",
        "sandbox: commands",
        "sandbox: home",
        "sandbox: transfers",
        "confinement",
    }
    assert wanted | {"provider loopback", "leftovers", "locks", "trust", "configuration"} <= set(found)
    assert "not verified" in found["sandbox: model access"].detail
    assert "access was not verified" in found["provider loopback"].detail
    assert found["trust"].detail == "trusted"
    assert project.state() == before
    [workspace] = office.outpost.workspaces
    assert [path.name for path in workspace.layout.worktrees.iterdir() if path.name[0] != "."] == []
    assert not list(workspace.layout.cache.rglob("doctor-*"))


@pytest.mark.parametrize(
    ("provider", "variables", "status", "told"),
    [
        ({"apiKeyEnv": "SOME_KEY"}, {"SOME_KEY": "do-not-show"}, "ok", "SOME_KEY is set"),
        ({"apiKeyEnv": "SOME_KEY"}, {}, "fail", "SOME_KEY is not set"),
        ({"apiKeyEnv": "SOME_KEY"}, {"SOME_KEY": " "}, "fail", "SOME_KEY is not set"),
        ({}, {}, "fail", "OPENAI_API_KEY is not set"),
        ({"apiKeyEnv": ""}, {}, "ok", "no key"),
    ],
)
async def test_DOC_04_each_key_is_looked_up_and_never_shown(
    folders: Layout,
    environment: dict[str, str],
    project: RealRepository,
    provider: dict[str, str],
    variables: dict[str, str],
    status: str,
    told: str,
) -> None:
    with ModelServer() as server:
        # The public service has a key of its own by default; it is not reached for in a test.
        address = {"baseUrl": server.base_url} if "apiKeyEnv" in provider else {}
        of_provider = {"kind": "openai", **address, **provider}
        settings = {"providers": {"a": of_provider}, "models": {"m": {"provider": "a", "name": "m"}}}
        async with Outpost(folders, environment | variables) as outpost:
            found = await looked_at(Office(outpost), project, settings)
    assert (found["provider a"].status, told in found["provider a"].detail) == (status, True)
    assert "do-not-show" not in "".join(check.detail for check in found.values())


async def test_DOC_04_a_key_that_the_editor_may_give_is_no_failure(
    folders: Layout, environment: dict[str, str], project: RealRepository
) -> None:
    async def ask(_provider: str) -> str | None:
        raise AssertionError("the doctor asks nobody")

    with ModelServer() as server:
        of_provider = {"kind": "openai", "baseUrl": server.base_url, "apiKeyEnv": "SOME_KEY"}
        settings = {"providers": {"a": of_provider}}
        async with Outpost(folders, environment, ask_client=ask) as outpost:
            found = await looked_at(Office(outpost), project, settings)
    assert found["provider a"].status == "warn"
    assert "reached" not in found["provider a"].detail


# The port of discard, where nothing listens.
NOBODY = "127.0.0.1:9"
DISCARD = f"http://{NOBODY}"


@pytest.mark.parametrize(
    ("base_url", "http", "variables", "told"),
    [
        (f"{DISCARD}/v1", {}, {}, f"it cannot be reached: nothing takes connections at {NOBODY}; is it running"),
        ("https://x.invalid/v1", {"proxy": DISCARD}, {}, "the proxy cannot be reached: nothing takes connections at"),
        ("https://x.invalid/v1", {"proxy": DISCARD}, {}, f"{NOBODY}; check `proxy` under [http]"),
        ("https://x.invalid/v1", {}, {"HTTPS_PROXY": DISCARD}, f"{NOBODY}; check the proxy that HTTPS_PROXY or ALL_"),
        ("https://x.invalid/v1", {}, {"ALL_PROXY": NOBODY}, f"{NOBODY}; check the proxy that HTTPS_PROXY or ALL_"),
        ("https://x.invalid/v1", {}, {"ALL_PROXY": "http://x:y"}, "its address is no URL; check the proxy that HTTPS_"),
        (f"{DISCARD}/v1", {"proxy": "http://x.invalid:1"}, {}, "it cannot be reached: nothing takes connections"),
    ],
)
async def test_a_service_or_a_proxy_that_takes_no_connections_is_told_with_what_to_look_at(
    office: Office,
    project: RealRepository,
    monkeypatch: pytest.MonkeyPatch,
    base_url: str,
    http: dict[str, str],
    variables: dict[str, str],
    told: str,
) -> None:
    for name in ("no_proxy", "NO_PROXY", "https_proxy", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    settings = loopback(base_url, http=http) | {
        "deciders": {"d": {"kind": "system-one", "baseUrl": base_url, "apiKeyEnv": ""}}
    }
    found = await looked_at(office, project, settings)
    for name in ("provider loopback", "decider d"):
        assert (found[name].status, told in found[name].detail) == ("warn", True), found[name]


async def test_a_clock_that_went_back_is_told(
    office: Office, project: RealRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = await office.workspace(project)
    await (await office.outpost.review(workspace, ReviewScope(scope="uncommitted"), agent="reviewer")).wait()
    assert (await looked_at(office, project))["clock"].status == "ok"

    class LastYear(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> LastYear:
            return cls.fromtimestamp(time.time() - 365 * 24 * 60 * 60, tz)

    monkeypatch.setattr(checks, "datetime", LastYear)
    check = (await looked_at(office, project))["clock"]
    assert (check.status, "set the clock of this machine" in check.detail) == ("warn", True)


async def test_DOC_04_programs_of_agents_and_servers_are_looked_up_and_not_run(
    office: Office, project: RealRepository, tmp_path: Path
) -> None:
    program = tmp_path / "some-agent"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    program.chmod(0o755)
    settings = {"agents": {"outside": {"command": [str(program)]}}, "mcp": {"docs": {"command": "no-such-server"}}}
    found = await looked_at(office, project, settings)
    assert found[f"sandbox: program {program}"].status == "ok"
    missing = found["sandbox: program no-such-server"]
    assert (missing.status, "Install no-such-server" in missing.detail) == ("fail", True)
    assert not (tmp_path / "ran").exists()


async def test_DOC_04_locks_of_dead_processes_are_named_and_stay(office: Office, project: RealRepository) -> None:
    workspace = await office.workspace(project)
    held = LockFolder(workspace.layout.locks).take("held by us")
    dead = workspace.layout.locks / "0123456789abcdef0123.json"
    dead.write_text(json.dumps({"pid": 2**22 + 1, "started": "1", "nonce": "n", "key": "branch"}))
    found = {check.name: check for check in await diagnose(office.outpost, workspace)}
    assert (found["locks"].status, found["locks"].detail[:6]) == ("warn", "1 lock")
    assert dead.exists()
    held.release()


async def test_DOC_04_an_old_git_and_a_wrong_address_are_failures(
    office: Office, project: RealRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "OLDEST_GIT", (99, 0))
    workspace = await office.workspace(project)
    found = {check.name: check for check in await diagnose(office.outpost, workspace)}
    assert (found["git"].status, "install git 99.0" in found["git"].detail) == ("fail", True)
    assert checks._service("provider a", "ftp://a.example", ("ok", "no key")).status == "fail"


async def test_the_doctor_says_plainly_that_the_built_in_decider_is_a_heuristic(
    office: Office, project: RealRepository
) -> None:
    check = (await looked_at(office, project))["decider rules"]
    right, seen = (sum(counts) for counts in zip(*shipped_record().values(), strict=True))
    assert check.status == "ok"
    assert check.detail.startswith(f"a heuristic: {len(RULES)} fixed rules, no model and no service")
    assert f"right in {right:,} of {seen:,} labelled steps" in check.detail
