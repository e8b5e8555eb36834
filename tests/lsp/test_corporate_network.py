"""A service behind a company's proxy, under a company's own certificate (U-35), reached by a real server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from tests.lsp.conftest import settings_for
from tests.lsp.server_process import ServerProcess, running_server
from tests.support.model_server import ModelServer
from tests.support.repositories import RealRepository

_TLS = Path(__file__).parent.parent / "cases" / "tls"
_CERTIFICATE = (_TLS / "elsewhere.pem", _TLS / "elsewhere.key")


@asynccontextmanager
async def connect_proxy(port: int, heard: list[bytes]) -> AsyncIterator[str]:
    """A proxy that knows one way: whatever is asked for with CONNECT is on this port of this machine."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.readuntil(b"\r\n\r\n"))
        there, back = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        with suppress(ConnectionError):
            await asyncio.gather(_pass_on(reader, back), _pass_on(there, writer))

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listening:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"


async def _pass_on(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    try:
        while data := await source.read(65536):
            target.write(data)
            await target.drain()
    finally:
        target.close()


async def _ended(server: ServerProcess) -> dict[str, Any]:
    run: dict[str, Any] = (await server.command("outpost.review", {"wait": True}))["run"]
    return run


async def _set(server: ServerProcess, mark: str, settings: dict[str, Any]) -> None:
    """Change settings, and wait until they are in force: an agent that came with them is there."""
    settings = settings | {"agents": {mark: {"tools": ["files"]}}}
    server.notify("workspace/didChangeConfiguration", {"settings": {"outpost": settings}})
    async with asyncio.timeout(60):
        while mark not in {one["name"] for one in (await server.command("outpost.agents"))["agents"]}:
            await asyncio.sleep(0.01)


async def test_u_35_a_private_certificate_and_a_proxy_are_settings_that_failures_name_and_changes_reach_at_once(
    changed: RealRepository,
) -> None:
    heard: list[bytes] = []
    with ModelServer(["Nothing is wrong."], certificate=_CERTIFICATE) as service:
        async with (
            connect_proxy(int(service.base_url.split(":")[2].split("/")[0]), heard) as proxy,
            running_server() as server,
        ):
            settings = settings_for(service)
            settings["providers"]["local"] |= {"baseUrl": "https://model.invalid/v1", "maxRetries": 0}
            settings["http"] = {"proxy": proxy}
            await server.initialize(changed.path, options={"settings": settings})
            run = await _ended(server)
            assert run["status"] == "failed"
            assert "ca_file" in run["error"]["message"]
            assert service.requests == []
            await _set(server, "trusting", {"http": {"caFile": str(_TLS / "elsewhere.pem")}})
            run = await _ended(server)
            assert (run["status"], run.get("text")) == ("succeeded", "Nothing is wrong.")
            assert heard[-1].startswith(b"CONNECT model.invalid:443 ")
            assert all(b"canary" not in head for head in heard)
            await _set(server, "lost", {"http": {"proxy": "http://127.0.0.1:1"}})
            run = await _ended(server)
            assert run["status"] == "failed"
            assert "proxy" in run["error"]["message"]
            assert [one["type"] for one in server.all("window/showMessage")] == [1, 3, 1]
