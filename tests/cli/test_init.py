"""`outpost-lsp init`: what is found, what the user's file becomes, and what is never done to it."""

from __future__ import annotations

import json
import os
import stat
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from outpost_lsp.cli.arguments import parse
from outpost_lsp.cli.init import init
from outpost_lsp.errors import OutpostError
from outpost_lsp.models.local_servers import USUAL_PLACES, LocalPlace, find_local_servers
from tests.cli.conftest import Program
from tests.support.repositories import RealRepository

KEY = "sk-a-key-that-is-never-shown"
Run = Callable[..., int]


@contextmanager
def listening(answer: bytes, status: int = 200, seen: list[str] | None = None) -> Iterator[str]:
    """A server on loopback that says the same to everybody; the address of its API."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if seen is not None:
                seen.append(f"{self.path} {dict(self.headers)}")
            self.send_response(status)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/v1"
        finally:
            server.shutdown()
            thread.join()


def models(*names: object) -> bytes:
    return json.dumps({"object": "list", "data": [{"id": name} for name in names]}).encode()


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    path = tmp_path / "home" / "outpost" / "config.toml"
    monkeypatch.setenv("OUTPOST_CONFIG", str(path))
    return path


def run(*arguments: str, places: tuple[LocalPlace, ...] = ()) -> int:
    return init(parse(["init", "--no-review", *arguments]), places)


def test_a_new_file_names_local_servers_and_keys_by_their_variables(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    seen: list[str] = []
    with listening(models("nomic-embed-text", "qwen-coder:7b", "other"), seen=seen) as url:
        assert run(places=(LocalPlace("ollama", "Ollama", url),)) == 0
    tree = tomllib.loads(config.read_text())
    assert tree["default_model"] == "ollama", "what costs nothing and leaves nowhere comes first"
    assert tree["providers"]["ollama"] == {"kind": "openai", "base_url": url, "api": "chat", "api_key_env": ""}
    assert tree["models"]["ollama"]["name"] == "qwen-coder:7b"
    assert tree["providers"]["openai"]["api_key_env"] == "OPENAI_API_KEY"
    assert tree["models"]["anthropic"]["max_output_tokens"] == 8000
    assert stat.S_IMODE(config.stat().st_mode) == 0o600
    told = capsys.readouterr()
    assert KEY not in config.read_text() + told.out + told.err + "".join(seen)
    assert len(seen) == 1
    assert seen[0].startswith("/v1/models ")


def test_what_the_user_wrote_stays_byte_for_byte_and_what_is_named_is_not_added_again(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    config.parent.mkdir(parents=True)
    mine = (
        '# mine\r\nreview.max_findings = 7\r\n[providers.ollama]\nkind = "openai"\n'
        'base_url = "https://models.example/v1"\napi_key_env = "MINE"'
    )
    config.write_bytes(mine.encode())
    config.chmod(0o640)
    with listening(models("small")) as url:
        places = (LocalPlace("ollama", "Ollama", url),)
        assert run(places=places) == 0
        once = config.read_bytes()
        assert run(places=places) == 0
    assert config.read_bytes() == once
    assert mine.encode() in once
    assert stat.S_IMODE(config.stat().st_mode) == 0o640
    tree = tomllib.loads(once.decode())
    assert tree["review"] == {"max_findings": 7}
    assert tree["providers"]["ollama"]["base_url"] == "https://models.example/v1"
    assert tree["providers"]["ollama-2"]["base_url"] == url
    assert tree["default_model"] == "ollama-2"
    assert list(config.parent.iterdir()) == [config], "nothing is left beside it"


def test_a_default_that_the_user_chose_stays(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    config.parent.mkdir(parents=True)
    config.write_text('default_model = "offline"\n')
    assert run() == 0
    assert tomllib.loads(config.read_text())["default_model"] == "offline"
    assert "claude" in tomllib.loads(config.read_text())["models"]["anthropic"]["name"]


def test_a_link_to_the_file_stays_a_link(config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    config.parent.mkdir(parents=True)
    kept = tmp_path / "dotfiles.toml"
    kept.write_text("")
    config.symlink_to(kept)
    assert run() == 0
    assert config.is_symlink()
    assert "OPENAI_API_KEY" in kept.read_text()


@pytest.mark.parametrize(
    "content",
    [b"default_model = ", b"\xff", b"providers = { mine = { kind = 'offline' } }\n", b"providers = 3\n"],
    ids=["cut", "no text", "a closed table", "no table"],
)
def test_a_file_that_cannot_be_added_to_is_left_alone_and_told_of(
    config: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    config.parent.mkdir(parents=True)
    config.write_bytes(content)
    with pytest.raises(OutpostError) as refused:
        run()
    assert "nothing was written" in refused.value.message
    assert config.read_bytes() == content
    assert list(config.parent.iterdir()) == [config]


def test_with_nothing_to_find_a_starting_file_is_written_and_a_dry_run_writes_none(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--dry-run") == 0
    assert not config.exists()
    assert "would write" in capsys.readouterr().out
    assert run() == 0
    assert tomllib.loads(config.read_text()) == {}
    assert "found no key" in capsys.readouterr().out


def test_no_file_at_all_is_refused(monkeypatch: pytest.MonkeyPatch, config: Path) -> None:
    monkeypatch.setenv("OUTPOST_CONFIG", os.devnull)
    with pytest.raises(OutpostError):
        run()


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (b"<html>hello</html>", 200),
        (b"[" * 100_000, 200),
        (b'{"data": {"id": 1}}', 200),
        (b'{"data": [{"id": 7}, {"id": "a\\nb"}]}', 200),
        (models(), 200),
        (models("small"), 404),
        (models("small"), 302),
        (b" " * (1024 * 1024 + 1) + models("small"), 200),
    ],
)
async def test_another_program_on_a_usual_port_is_no_model_server(answer: bytes, status: int) -> None:
    with listening(answer, status) as url:
        assert await find_local_servers([LocalPlace("any", "Any", url)]) == []


def test_the_usual_ports_are_those_of_the_four_servers() -> None:
    assert [place.base_url.split(":")[2] for place in USUAL_PLACES] == ["11434/v1", "1234/v1", "8080/v1", "8000/v1"]


def test_one_review_follows_and_a_service_that_costs_money_is_not_asked_without_a_yes(
    config: Path,
    project: RealRepository,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OUTPOST_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("OUTPOST_CACHE_DIR", str(tmp_path / "cache"))
    assert init(parse(["init", "-C", str(project.path)]), ()) == 0
    told = capsys.readouterr()
    assert "the built-in rules review" in told.out
    assert "shop/orders.py:2:5: error: " in told.out
    assert KEY not in told.out + told.err + config.read_text()


def test_outside_a_repository_the_demo_shows_a_review(program: Program, tmp_path: Path) -> None:
    ended = program("init", cwd=tmp_path)
    assert ended.status == 0, ended.err
    assert "this is the demo" in ended.out
    assert "findings: " in ended.out
