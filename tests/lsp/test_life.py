"""The life of a server process: its start, bad messages, and every way to its end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from outpost_lsp import __version__
from outpost_lsp.protocol import names
from tests.lsp.server_process import ServerProcess, running_server


async def test_initialize_is_answered_with_what_is_promised() -> None:
    async with running_server() as server:
        result = await server.initialize()
        assert result["serverInfo"] == {"name": "outpost-lsp", "version": __version__}
        capabilities = result["capabilities"]
        assert capabilities["positionEncoding"] == "utf-16"
        assert capabilities["textDocumentSync"] == {"openClose": True, "change": 2, "save": {"includeText": False}}
        assert capabilities["executeCommandProvider"]["commands"] == list(names.COMMANDS)
        assert capabilities["workspace"]["workspaceFolders"] == {"supported": True, "changeNotifications": True}
        assert capabilities["experimental"]["outpost"] == {"protocol": 1, "notifications": list(names.NOTIFICATIONS)}
        assert await server.shut_down() == 0


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [
        (["utf-8", "utf-16"], "utf-8"),
        (["utf-32"], "utf-32"),
        (["utf-16"], "utf-16"),
        (["ebcdic"], "utf-16"),
        ([], "utf-16"),
    ],
)
async def test_the_first_known_position_encoding_of_the_client_is_chosen(offered: list[str], chosen: str) -> None:
    async with running_server() as server:
        result = await server.initialize(capabilities={"general": {"positionEncodings": offered}})
        assert result["capabilities"]["positionEncoding"] == chosen


async def test_code_action_kinds_are_told_to_clients_that_know_them() -> None:
    literals = {"codeActionKind": {"valueSet": ["quickfix"]}}
    async with running_server() as server:
        result = await server.initialize(
            capabilities={"textDocument": {"codeAction": {"codeActionLiteralSupport": literals}}}
        )
        kinds = result["capabilities"]["codeActionProvider"]["codeActionKinds"]
        assert kinds == ["quickfix", "source.outpost.review"]


async def test_requests_before_initialize_are_refused_and_notifications_ignored() -> None:
    async with running_server() as server:
        server.notify("textDocument/didOpen", {"textDocument": {}})
        assert (await server.fault("textDocument/hover", {}))["code"] == -32002
        await server.initialize()
        assert (await server.fault("initialize", {"capabilities": {}}))["code"] == -32600


async def test_requests_after_shutdown_are_refused() -> None:
    async with running_server() as server:
        await server.initialize()
        assert await server.request("shutdown") is None
        assert (await server.fault("workspace/executeCommand", {"command": "outpost.runs"}))["code"] == -32600
        server.notify("exit")
        assert await server.ended() == 0


async def test_exit_without_shutdown_ends_with_one() -> None:
    async with running_server() as server:
        await server.initialize()
        server.notify("exit")
        assert await server.ended() == 1


@pytest.mark.parametrize("last", [b"", b"Content-Le", b"Content-Length: 100\r\n\r\n{", b"\r\n\r\n"])
async def test_REL_03_the_end_of_the_input_ends_the_server(last: bytes) -> None:
    async with running_server() as server:
        await server.initialize()
        server.send_bytes(last)
        assert server.process.stdin is not None
        server.process.stdin.close()
        start = time.monotonic()
        assert await server.ended() == 1
        assert time.monotonic() - start < 20


async def test_REL_03_a_server_whose_first_bytes_never_come_ends_too() -> None:
    async with running_server() as server:
        assert server.process.stdin is not None
        server.process.stdin.close()
        assert await server.ended() == 1


async def test_REL_03_the_death_of_the_client_ends_the_server() -> None:
    client = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
    try:
        async with running_server() as server:
            await server.initialize(process_id=client.pid)
            client.kill()
            client.wait()
            assert await server.ended() == 1
    finally:
        client.kill()
        client.wait()


async def test_a_client_process_named_by_option_is_watched() -> None:
    client = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
    try:
        async with running_server("--clientProcessId", str(client.pid)) as server:
            await server.request("initialize", {"processId": None, "capabilities": {}})
            client.kill()
            client.wait()
            assert await server.ended() == 1
    finally:
        client.kill()
        client.wait()


async def test_a_client_process_that_is_not_there_is_not_watched() -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    async with running_server() as server:
        await server.initialize(process_id=gone.pid)
        assert (await server.command("outpost.runs"))["runs"] == []
        assert await server.shut_down() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_a_signal_ends_the_server(number: signal.Signals) -> None:
    async with running_server() as server:
        await server.initialize()
        os.kill(server.process.pid, number)
        assert await server.ended() == 1


async def test_malformed_messages_are_answered_and_survived() -> None:
    async with running_server() as server:
        await server.initialize()
        bad: list[tuple[bytes, int]] = [
            (b"rubbish\r\n\r\n", -32700),
            (b"Content-Length: 2\r\n\r\n{]", -32700),
            (b"Content-Length: 4\r\n\r\n\xff\xfe\xfd\xfc", -32700),
            (b"Content-Length: 2\r\n\r\n[]", -32600),
            (b"Content-Length: 2\r\n\r\n{}", -32600),
            (b"Content-Length: 4\r\n\r\nnull", -32600),
            (b"Content-Length: 100000\r\n\r\n" + b"[" * 100_000, -32700),
            (b'Content-Length: 31\r\n\r\n{"id":null,"method":"shutdown"} ', -32600),
        ]
        for number, (data, code) in enumerate(bad, 1):
            server.send_bytes(data)
            await server.wait_for(lambda _, number=number: _faults(server) >= number)
            answer = [one for one in server.received if "error" in one][-1]
            assert answer["error"]["code"] == code, data[:60]
            assert answer["id"] is None
        assert await server.shut_down() == 0


async def test_unknown_methods_and_ill_parameters_are_answered() -> None:
    async with running_server() as server:
        await server.initialize()
        assert (await server.fault("textDocument/everything", {}))["code"] == -32601
        refused = await server.fault("textDocument/hover", {"textDocument": {}})
        assert refused["code"] == -32602
        assert "uri" in refused["message"]
        server.notify("$/unknown", {})
        server.notify("textDocument/everything", {})
        server.notify("textDocument/didOpen", {"textDocument": 3})
        server.notify("notebookDocument/didOpen", {"notebookDocument": {}, "cellTextDocuments": []})
        server.notify(
            "textDocument/didChange", {"textDocument": {"uri": "file:///no", "version": 1}, "contentChanges": []}
        )
        server.notify("$/cancelRequest", {"id": 99})
        server.send({"jsonrpc": "2.0", "id": "never asked", "result": 3})
        assert await server.shut_down() == 0


async def test_an_id_in_use_is_refused() -> None:
    async with running_server() as server:
        await server.initialize()
        call = {"command": "outpost.doctor", "arguments": []}
        server.send({"jsonrpc": "2.0", "id": "twice", "method": "workspace/executeCommand", "params": call})
        server.send({"jsonrpc": "2.0", "id": "twice", "method": "workspace/executeCommand", "params": call})
        await server.wait_for(lambda one: one.get("id") == "twice" and "error" in one)
        await server.wait_for(lambda one: one.get("id") == "twice" and "result" in one)


async def test_rel_22_prints_and_children_do_not_reach_the_output() -> None:
    async with running_server(environment={"PYTHONUNBUFFERED": "1"}) as server:
        await server.initialize()
        descriptors = Path(f"/proc/{server.process.pid}/fd")
        assert (descriptors / "1").readlink() == (descriptors / "2").readlink()
        assert (descriptors / "0").readlink() == Path(os.devnull)
        assert await server.shut_down() == 0


async def test_a_client_that_does_not_read_blocks_nobody_else_and_loses_nothing() -> None:
    async with running_server() as server:
        await server.initialize()
        for _ in range(2000):
            server.begin("textDocument/" + "x" * 2000, {})
        last = server.begin("textDocument/last", {})
        await server.answer_to(last)
        assert len([one for one in server.received if "error" in one]) == 2001


async def test_options_of_wrong_types_are_named_and_stop_nothing() -> None:
    async with running_server() as server:
        await server.initialize(
            options={"settings": [], "trusted": "yes", "events": "loud", "secrets": 1, "token": 3, "other": {}}
        )
        for name in ("settings", "trusted", "events", "secrets", "token"):
            await server.notification(
                "window/showMessage", lambda params, name=name: f"initializationOptions.{name}" in params["message"]
            )
        assert (await server.command("outpost.runs"))["runs"] == []


@pytest.mark.parametrize("arguments", [(), ("--stdio",), ("serve", "--stdio")], ids=" ".join)
def test_every_way_to_start_it_on_standard_input_serves(arguments: tuple[str, ...]) -> None:
    requests = [
        {"id": 1, "method": "initialize", "params": {"processId": None, "capabilities": {}}},
        {"id": 2, "method": "shutdown"},
        {"method": "exit"},
    ]
    bodies = [json.dumps({"jsonrpc": "2.0", **request}).encode() for request in requests]
    spoken = b"".join(b"Content-Length: %d\r\n\r\n%b" % (len(body), body) for body in bodies)
    ended = subprocess.run(
        [sys.executable, "-m", "outpost_lsp", *arguments], input=spoken, capture_output=True, timeout=60, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert b'"serverInfo"' in ended.stdout
    assert b'"id":2,"result":null' in ended.stdout


async def test_input_from_a_file_is_served_to_its_end(tmp_path: Path) -> None:
    body = b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"processId":null,"capabilities":{}}}'
    script = tmp_path / "input"
    script.write_bytes(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
    with script.open("rb") as source:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "outpost_lsp",
            "serve",
            stdin=source,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        output, _ = await process.communicate()
    assert process.returncode == 1
    assert output.count(b"Content-Length") == 1
    assert b'"serverInfo"' in output


async def test_a_client_that_never_reads_the_log_is_served_all_the_same() -> None:
    def message(method: str, **more: Any) -> bytes:
        body = json.dumps({"jsonrpc": "2.0", "method": method, **more}).encode()
        return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)

    source, unread = os.pipe()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "outpost_lsp", "serve", "--log-level", "debug",
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=unread,
    )  # fmt: skip
    os.close(unread)
    assert process.stdin is not None
    process.stdin.write(message("initialize", id=1, params={"processId": None, "capabilities": {}}))
    for number in range(3000):
        process.stdin.write(message(f"textDocument/unknown{number}{'x' * 100}", params={}))
    process.stdin.write(message("shutdown", id=2) + message("exit"))
    async with asyncio.timeout(60):
        output, _ = await process.communicate()
    os.close(source)
    assert process.returncode == 0
    assert output.count(b"Content-Length") == 2


async def test_the_log_goes_to_a_file_of_the_user_alone(tmp_path: Path) -> None:
    file = tmp_path / "server.log"
    async with running_server("--log-file", str(file)) as server:
        await server.initialize()
        assert await server.shut_down() == 0
    assert "serving" in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600


def _faults(server: ServerProcess) -> int:
    return len([one for one in server.received if "error" in one])
