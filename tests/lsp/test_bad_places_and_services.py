"""Folders, files and services that are not as they should be: a clear message, an end of the run, and a server that goes on."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.lsp.conftest import settings_for
from tests.lsp.server_inside import InsideServer, inside_server
from tests.support.model_answers import Answer
from tests.support.model_server import ModelServer
from tests.support.repositories import RealRepository, make_repository

SLIP = "print(no_such_name)\n"


def plain(place: Path) -> None:
    place.mkdir()
    (place / "a.py").write_text(SLIP)


def bare(place: Path) -> None:
    subprocess.run(["git", "init", "-q", "--bare", str(place)], check=True)


def missing(_: Path) -> None:
    """Nothing is there."""


def without_commits(place: Path) -> None:
    plain(place)
    subprocess.run(["git", "init", "-q", str(place)], check=True)


def detached(place: Path) -> None:
    repository = make_repository(place, {"a.py": "x = 1\n"})
    repository.git("checkout", "-q", "--detach")
    repository.write("a.py", SLIP)


async def _goes_on(server: InsideServer) -> None:
    assert (await server.command("outpost.agents"))["agents"]
    assert await server.shut_down() == 0


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (plain, "is not a git repository, so there are no changes to tell. Review a file, a selection or the whole"),
        (bare, "is a bare repository; open a checkout or a worktree of it instead."),
        (missing, "does not exist or cannot be opened."),
    ],
)
async def test_a_folder_that_cannot_be_reviewed_is_named_with_what_to_do(
    tmp_path: Path, make: Callable[[Path], None], words: str
) -> None:
    make(tmp_path / "place")
    async with inside_server() as server:
        await server.initialize(tmp_path / "place")
        fault = await server.command_fault("outpost.review", {"wait": True})
        assert (fault["code"], fault["data"]["code"]) == (-32803, "workspace")
        assert f"{tmp_path / 'place'} {words}" in fault["message"]
        await _goes_on(server)


@pytest.mark.parametrize("make", [without_commits, detached])
async def test_a_repository_without_commits_or_a_branch_is_reviewed(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    make(tmp_path / "place")
    async with inside_server() as server:
        await server.initialize(tmp_path / "place")
        run = (await server.command("outpost.review", {"wait": True}))["run"]
        assert (run["status"], run["findings"]) == ("succeeded", 1)
        assert (run["base"] == "") == (make is without_commits)
        await _goes_on(server)


async def test_odd_bytes_and_names_are_reviewed_and_placed(repository: RealRepository) -> None:
    files = {
        "latin.py": b"# caf\xe9\r\n" + SLIP.encode(),
        "crlf.py": b"x = 1\r\nprint(no_such_name)\r\n",
        "with space #1 100% \u00e4\u4e2d.py": b"x = 1\n" + SLIP.encode(),
        "d%41r/f#g.py": b"x = 1\n" + SLIP.encode(),
        "data.bin": b"\0\1\2" * 100,
    }
    for name, content in files.items():
        (repository.path / name).parent.mkdir(exist_ok=True)
        (repository.path / name).write_bytes(content)
    async with inside_server() as server:
        await server.initialize(repository.path)
        await server.command("outpost.review", {"wait": True})
        found = (await server.command("outpost.findings"))["findings"]
        assert {one["uri"] for one in found} == {
            (repository.path / name).as_uri() for name in files if name.endswith(".py")
        }
        assert {one["range"]["start"]["line"] for one in found} == {1}
        await _goes_on(server)


@pytest.mark.parametrize(
    ("answer", "code", "words"),
    [
        (None, "configuration", "the environment variable NO_SUCH_KEY is not set; set it where the server is started"),
        (Answer(status=401), "provider", "the key was refused; check the key of this provider"),
        (Answer(status=429), "quota", "too many requests, or the quota is used up; try again later"),
        (Answer(status=500), "provider", "the service failed; try again later"),
        (Answer(text="one two three", pieces=8, cut_after=3), "provider", "the connection was cut"),
    ],
    ids=["no key", "401", "429", "500", "cut"],
)
async def test_a_service_that_fails_ends_the_run_with_the_reason_and_what_to_do(
    changed: RealRepository, service: ModelServer, answer: Answer | None, code: str, words: str
) -> None:
    settings = settings_for(service)
    settings["providers"]["local"]["maxRetries"] = 0
    if answer is None:
        settings["providers"]["local"]["apiKeyEnv"] = "NO_SUCH_KEY"
    else:
        service.add(answer)
    await _fails(changed, settings, code, words)


async def test_a_service_that_is_not_there_ends_the_run_with_its_address(
    changed: RealRepository, service: ModelServer
) -> None:
    settings = settings_for(service)
    # The port of discard, where nothing listens.
    settings["providers"]["local"] |= {"baseUrl": "http://127.0.0.1:9/v1", "maxRetries": 0}
    await _fails(changed, settings, "provider", "(http://127.0.0.1:9/v1/chat/completions): is the service running")


async def _fails(changed: RealRepository, settings: dict[str, Any], code: str, words: str) -> None:
    async with inside_server() as server:
        await server.initialize(changed.path, options={"settings": settings})
        run = (await server.command("outpost.review", {"wait": True}))["run"]
        assert (run["status"], run["error"]["code"]) == ("failed", code)
        assert words in run["error"]["message"]
        [told] = [one for one in server.all("window/showMessage") if "failed" in one["message"]]
        assert (told["type"], words in told["message"]) == (1, True)
        await _goes_on(server)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ({"name": "report_finding", "input": '{"path": "src/ma'}, "the arguments are no JSON"),
        ({"name": "no_such_tool", "input": {}}, "There is no tool named 'no_such_tool'. Tools: "),
    ],
)
async def test_a_call_that_makes_no_sense_is_told_to_the_model_and_the_run_goes_on(
    changed: RealRepository, service: ModelServer, call: dict[str, Any], words: str
) -> None:
    service.add(Answer(calls=[call]), "Done.")
    async with inside_server() as server:
        await server.initialize(changed.path, options={"settings": settings_for(service)})
        run = (await server.command("outpost.review", {"wait": True}))["run"]
        assert (run["status"], run["text"]) == ("succeeded", "Done.")
        assert words in service.requests[-1].json["messages"][-1]["content"]
        await _goes_on(server)
