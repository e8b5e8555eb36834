"""The face on Ray Serve, and Ray as its engine. Nobody but this process and its workers speaks Ray."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final

import ray
from ray import serve
from ray.exceptions import ActorUnavailableError, RayActorError
from starlette.requests import Request
from starlette.responses import Response

from outpost_lsp.cluster import job as jobs
from outpost_lsp.cluster.face import Face, LostJobError, Placed
from outpost_lsp.cluster.keeping import KeptJob, KeptJobs
from outpost_lsp.cluster.last_places import LastPlaces
from outpost_lsp.cluster.resources import FACE, KEEPER, NAMESPACE, SLOT
from outpost_lsp.cluster.tokens import token_digest
from outpost_lsp.domain.job import JobRecord

_PLACED_S: Final = 3.0
"""A job that has a place says so sooner."""
_UNWIND_S: Final = 12.0
_UNAVAILABLE_S: Final = 15.0
"""How long Ray may doubt whether a process lives; then the face takes it for dead."""
_PAUSE_S: Final = 0.5


class RayEngine:
    """Places jobs as actors."""

    async def place(self, record: bytes, job: JobRecord, delta: bytes, owner: str) -> None:
        """Make the job's actor, unless it is there."""
        if job.detach and await _Kept(owner, job.id).job() is not None:
            return
        node = await _asked("where", jobs.repository_key(owner, job))
        # Ray's own calls wait for its control store, so none is made by the event loop.
        await asyncio.to_thread(jobs.place, record, job, delta, owner, node)

    async def find(self, id: str, owner: str) -> Placed | None:
        """The job's actor, when it is this owner's."""
        kept = _Kept(owner, id)
        try:
            return _PlacedActor(await asyncio.to_thread(jobs.find, id, owner), kept)
        except ValueError:
            return await kept.job()

    async def capacity(self) -> tuple[int, int]:
        """Slots of all workers, and those that are free."""
        there = await asyncio.to_thread(ray.cluster_resources)
        free = await asyncio.to_thread(ray.available_resources)
        return int(there.get(SLOT, 0)), int(free.get(SLOT, 0))


@ray.remote(max_restarts=-1, max_task_retries=3, num_cpus=0)
class Keeper:
    """Keeps what detached runs left, in a folder that outlives it, and knows where repositories were last."""

    def __init__(self, folder: str) -> None:
        self._kept = KeptJobs(Path(folder))
        self._places = LastPlaces()

    def went(self, repository: str, node: str) -> None:
        """A job of a repository is on this node."""
        self._places.went(repository, node)

    def where(self, repository: str) -> str | None:
        """Where the last job of a repository went."""
        return self._places.where(repository)

    def put(self, owner: str, id: str, lines: bytes, pack: bytes) -> bool:
        """Keep a job."""
        return self._kept.put(owner, id, lines, pack)

    def get(self, owner: str, id: str) -> tuple[bytes, bytes] | None:
        """A kept job."""
        return self._kept.get(owner, id)

    def remove(self, owner: str, id: str) -> None:
        """Forget a job."""
        self._kept.remove(owner, id)


class _Kept:
    """What the keeper has of one job."""

    def __init__(self, owner: str, id: str) -> None:
        self._owner = owner
        self._id = id

    async def job(self) -> Placed | None:
        found = await _asked("get", self._owner, self._id)
        return None if found is None else _KeptJob(self, *found)

    async def remove(self) -> None:
        await _asked("remove", self._owner, self._id)


async def _asked(name: str, *arguments: str) -> Any:
    """What the keeper answers; nothing where there is none."""
    try:
        keeper = await asyncio.to_thread(ray.get_actor, KEEPER, namespace=NAMESPACE)
    except ValueError:
        return None
    return await getattr(keeper, name).remote(*arguments)


class _KeptJob(KeptJob):
    def __init__(self, kept: _Kept, lines: bytes, pack: bytes) -> None:
        super().__init__(lines, pack)
        self._kept = kept

    async def cancel(self) -> None:
        await self._kept.remove()


class _PlacedActor:
    def __init__(self, actor: Any, kept: _Kept) -> None:
        self._actor = actor
        self._kept = kept

    async def take_base(self, pack: bytes) -> None:
        await self._call("take_base", ray.put(pack))

    async def events(self, after: int, wait_s: float) -> list[bytes]:
        try:
            lines: list[bytes] = await self._call("events", after, wait_s)
        except LostJobError:
            # A detached one is gone as soon as what it did is kept.
            if (kept := await self._kept.job()) is None:
                raise
            return await kept.events(after, wait_s)
        return lines

    async def steer(self, id: str, text: str, subagent: str | None, to_anyone: bool) -> None:
        await self._call("steer", id, text, subagent, to_anyone)

    async def answer(self, question: str, answer: str) -> None:
        await self._call("answer", question, answer)

    async def result_pack(self) -> bytes:
        return bytes(await self._call("result_pack"))

    async def cancel(self) -> None:
        try:
            async with asyncio.timeout(_PLACED_S):
                await self._call("begin")
            async with asyncio.timeout(_UNWIND_S):
                is_over = await self._call("cancel")
            if is_over:
                await self._kept.remove()
        except TimeoutError:
            # It has no place yet, so it never begins; or it does not unwind, and the kernel ends what it started.
            await asyncio.to_thread(ray.kill, self._actor, no_restart=True)
        except LostJobError:
            return

    async def _call(self, name: str, *arguments: Any) -> Any:
        unavailable_until: float | None = None
        while True:
            asked = getattr(self._actor, name).remote(*arguments)
            try:
                return await asked
            except asyncio.CancelledError:
                # Whoever asked is gone; an answer that waits for it would count as one that is read.
                ray.cancel(asked)
                raise
            except ActorUnavailableError as error:
                now = asyncio.get_running_loop().time()
                unavailable_until = unavailable_until or now + _UNAVAILABLE_S
                if now > unavailable_until:
                    raise LostJobError("the machine that carried the run out does not answer") from error
            except RayActorError as error:
                raise LostJobError("the process that carried the run out is gone") from error
            await asyncio.sleep(_PAUSE_S)


@serve.deployment(name="outpost", max_ongoing_requests=1000)
class ServedFace:
    """One replica of the face. What it is given passes through the cluster, so it is no token but what tells one."""

    def __init__(self, digests: tuple[str, ...]) -> None:
        self._face = Face(RayEngine(), digests)

    async def __call__(self, request: Request) -> Response:
        return await self._face(request)


def start(
    address: str,
    tokens: tuple[str, ...],
    *,
    host: str,
    port: int,
    certificate: Path | None,
    key: Path | None,
    replicas: int,
    folder: Path,
) -> None:
    """Join the cluster and serve. Returns at once; the face lives as long as the cluster's Serve."""
    ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, ignore_reinit_error=True)
    options = {"host": host, "port": port}
    if certificate is not None and key is not None:
        options |= {"ssl_certfile": str(certificate), "ssl_keyfile": str(key)}
    serve.start(http_options=options, proxy_location="HeadOnly")
    pinned = {"num_cpus": 0, "resources": {FACE: 0.001}}
    Keeper.options(  # type: ignore[attr-defined]
        name=KEEPER, namespace=NAMESPACE, lifetime="detached", get_if_exists=True, resources={FACE: 0.001}
    ).remote(str(folder))
    serve.run(
        ServedFace.options(num_replicas=replicas, ray_actor_options=pinned).bind(tuple(map(token_digest, tokens))),  # type: ignore[attr-defined]
        name="outpost",
        route_prefix="/",
    )


def stop() -> None:
    """End the face; jobs that are carried out go on until their leases end."""
    serve.delete("outpost")
    ray.shutdown()
