"""A face whose jobs are carried out in the test's own process: everything of a cluster but its engine."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from outpost_lsp.cluster.face import Face, LostJobError, Placed
from outpost_lsp.cluster.hosting import HostedJob
from outpost_lsp.cluster.keeping import KeptJob, KeptJobs
from outpost_lsp.cluster.tokens import token_digest
from outpost_lsp.domain.job import JobRecord
from outpost_lsp.service.job_worker import JobWorker

TOKEN = "token-of-the-tests-0001"
OTHER_TOKEN = "token-of-somebody-else-2"


class PlacedHere:
    """A job of this process."""

    def __init__(self, hosted: HostedJob, folder: Path) -> None:
        self.hosted = hosted
        self._folder = folder
        self.lost = asyncio.Event()
        self.forget = lambda: None

    async def take_base(self, pack: bytes) -> None:
        file = self._folder / f"{self.hosted.job.id}.pack"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(pack)
        await self.hosted.take_base(file)

    async def events(self, after: int, wait_s: float) -> list[bytes]:
        asked = asyncio.ensure_future(self.hosted.events(after, wait_s))
        gone = asyncio.ensure_future(self.lost.wait())
        try:
            await asyncio.wait((asked, gone), return_when=asyncio.FIRST_COMPLETED)
            if self.lost.is_set():
                raise LostJobError
            return asked.result()
        finally:
            for task in (asked, gone):
                task.cancel()

    async def steer(self, id: str, text: str, subagent: str | None, to_anyone: bool) -> None:
        self.hosted.steer(id, text, subagent, to_anyone=to_anyone)

    async def answer(self, question: str, answer: str) -> None:
        self.hosted.answer(question, answer)

    async def result_pack(self) -> bytes:
        return self.hosted.result_pack()

    async def cancel(self) -> None:
        if await self.hosted.cancel():
            self.forget()


class KeptHere(KeptJob):
    """What a detached job of this process left."""

    def __init__(self, engine: EngineHere, owner: str, id: str, lines: bytes, pack: bytes) -> None:
        super().__init__(lines, pack)
        self._forget = lambda: engine.kept.remove(owner, id)

    async def cancel(self) -> None:
        self._forget()


class EngineHere:
    """Places every job at once."""

    def __init__(self, worker: JobWorker, folder: Path) -> None:
        self._worker = worker
        self._folder = folder
        self.jobs: dict[tuple[str, str], PlacedHere] = {}
        self.kept = KeptJobs(folder / "kept")
        self.placed: list[JobRecord] = []
        self.deltas: list[bytes] = []
        self.ended: list[str] = []

    async def place(self, record: bytes, job: JobRecord, delta: bytes, owner: str) -> None:
        if (owner, job.id) in self.jobs or self.kept.get(owner, job.id) is not None:
            return
        self.placed.append(job)
        self.deltas.append(delta)

        async def keep(lines: bytes, pack: bytes) -> bool:
            return self.kept.put(owner, job.id, lines, pack)

        def gone() -> None:
            self.ended.append(job.id)
            if job.detach:
                # As an actor's process ends.
                del self.jobs[owner, job.id]

        hosted = HostedJob(self._worker, job, delta, place="here", owner=owner, gone=gone, keep=keep, collected_s=0.2)
        placed = self.jobs[owner, job.id] = PlacedHere(hosted, self._folder)
        placed.forget = lambda: self.kept.remove(owner, job.id)

    async def find(self, id: str, owner: str) -> Placed | None:
        placed = self.jobs.get((owner, id))
        if placed is not None:
            return placed
        kept = self.kept.get(owner, id)
        return None if kept is None else KeptHere(self, owner, id, *kept)

    async def capacity(self) -> tuple[int, int]:
        return 4, 4


class HostedFace:
    """A running face: its URL, and its engine."""

    def __init__(self, url: str, engine: EngineHere) -> None:
        self.url = url
        self.engine = engine
        self.requests: list[str] = []

    def settings(self, **more: object) -> dict[str, object]:
        """The client's settings that send runs there."""
        return {"runs": {"executor": "ray", "ray": {"url": self.url, "tokenEnv": "OUTPOST_RAY_TOKEN", **more}}}


@contextlib.asynccontextmanager
async def hosted_face(
    folder: Path, *, user_file: Path | None = None, environment: Mapping[str, str] | None = None
) -> AsyncIterator[HostedFace]:
    """A face on loopback with a worker below `folder`."""
    worker = JobWorker(folder / "worker", environment or {"PATH": os.environ["PATH"]}, user_file=user_file)
    engine = EngineHere(worker, folder / "packs")
    face = Face(engine, (token_digest(TOKEN), token_digest(OTHER_TOKEN)))
    running = HostedFace("", engine)

    async def answer(request: Request) -> Response:
        running.requests.append(f"{request.method} {request.url.path}")
        return await face(request)

    app = Starlette(routes=[Route("/{path:path}", answer, methods=["GET", "POST", "PUT", "DELETE"])])
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error", lifespan="off"))
    serving = asyncio.ensure_future(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    running.url = f"http://127.0.0.1:{port}"
    try:
        yield running
    finally:
        for placed in engine.jobs.values():
            await placed.hosted.cancel()
            placed.hosted.abandon()
        server.should_exit = True
        server.force_exit = True
        await serving
