"""A job as an actor of Ray: one process of its own, placed by what it needs, never begun twice.

Only bytes and plain values cross Ray's wires. The actor is found by the job's id; it holds its slot until its process
ends, which it does by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Final, TypeVar

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from outpost_lsp.cluster.hosting import HostedJob
from outpost_lsp.cluster.resources import (
    BASES_VARIABLE,
    CONFIGURATION_VARIABLE,
    FOLDER_VARIABLE,
    KEEPER,
    NAMESPACE,
    SHELL,
    SLOT,
)
from outpost_lsp.cluster.spares import ask_for_one
from outpost_lsp.domain.job import JobRecord
from outpost_lsp.sandbox.confinement import probe_confinement
from outpost_lsp.service.job_bases import MOST_BASE_BYTES
from outpost_lsp.service.job_worker import JobWorker

logger = logging.getLogger(__name__)

_KEEP_S: Final = 60.0
_TELL_S: Final = 10.0
_BEGINNING_S: Final = 1.0

T = TypeVar("T")


@ray.remote(max_restarts=0, max_task_retries=0, max_concurrency=1000)
class JobActor:
    """The process of one job."""

    def __init__(self, record: bytes, delta: bytes, owner: str) -> None:
        self._owner = owner
        self._job = JobRecord.model_validate_json(record)
        self._delta = delta
        self._folder = Path(os.environ.get(FOLDER_VARIABLE) or Path.home() / ".cache" / "outpost" / "worker")
        self._made: asyncio.Future[HostedJob] | None = None
        self._telling: asyncio.Future[None]
        # Ray's own loop, and its policy, start processes otherwise than those that the product is made for.
        asyncio.set_event_loop_policy(asyncio.DefaultEventLoopPolicy())
        self._loop = asyncio.SelectorEventLoop()
        threading.Thread(target=self._loop.run_forever, name="job", daemon=True).start()

    async def begin(self) -> None:
        """Begin, once however often this is called."""
        await self._there(self._hosted())

    async def take_base(self, pack: bytes) -> None:
        """Take the base that was asked for."""
        file = self._folder / "packs" / f"{os.getpid()}.pack"
        await asyncio.to_thread(_write, file, pack)
        try:
            await self._there(self._take_base(file))
        finally:
            file.unlink(missing_ok=True)

    async def events(self, after: int, wait_s: float) -> list[bytes]:
        """What happened since."""
        return await self._there(self._events(after, wait_s))

    async def steer(self, id: str, text: str, subagent: str | None, to_anyone: bool) -> None:
        """An instruction."""
        await self._there(self._steer(id, text, subagent, to_anyone=to_anyone))

    async def answer(self, question: str, answer: str) -> None:
        """A person's answer."""
        await self._there(self._answer(question, answer))

    async def result_pack(self) -> bytes:
        """The result's objects."""
        return await self._there(self._result_pack())

    async def cancel(self) -> bool:
        """Stop; whether nobody will ask for it again."""
        return await self._there(self._cancel())

    # In the job's own loop

    async def _there(self, asked: Coroutine[Any, Any, T]) -> T:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(asked, self._loop))

    async def _hosted(self) -> HostedJob:
        if self._made is None:
            self._made = asyncio.ensure_future(self._make())
        return await asyncio.shield(self._made)

    async def _make(self) -> HostedJob:
        configured = os.environ.get(CONFIGURATION_VARIABLE)
        # Looked up only where it matters: it costs a process.
        path, needs_shell = os.environ.get("PATH", ""), self._job.needs.shell
        worker = JobWorker(
            self._folder,
            dict(os.environ),
            user_file=Path(configured) if configured else None,
            most_base_bytes=int(os.environ.get(BASES_VARIABLE) or MOST_BASE_BYTES),
            can_confine=needs_shell and (await probe_confinement(path=path)).is_available,
        )
        self._telling = asyncio.ensure_future(self._tell())
        return HostedJob(
            worker, self._job, self._delta, place=_place(), owner=self._owner, gone=self._leave, keep=self._kept
        )

    async def _tell(self) -> None:
        await asyncio.to_thread(_tell_place, repository_key(self._owner, self._job))
        # The process of the next run must not hold up the beginning of this one.
        await asyncio.sleep(_BEGINNING_S)
        await asyncio.to_thread(ask_for_one)

    def _leave(self) -> None:
        self._telling.add_done_callback(lambda _: _end())

    async def _take_base(self, file: Path) -> None:
        await (await self._hosted()).take_base(file)

    async def _events(self, after: int, wait_s: float) -> list[bytes]:
        return await (await self._hosted()).events(after, wait_s)

    async def _steer(self, id: str, text: str, subagent: str | None, *, to_anyone: bool) -> None:
        (await self._hosted()).steer(id, text, subagent, to_anyone=to_anyone)

    async def _answer(self, question: str, answer: str) -> None:
        (await self._hosted()).answer(question, answer)

    async def _result_pack(self) -> bytes:
        return (await self._hosted()).result_pack()

    async def _cancel(self) -> bool:
        return await (await self._hosted()).cancel()

    async def _kept(self, lines: bytes, pack: bytes) -> bool:
        try:
            return await asyncio.to_thread(_keep, self._owner, self._job.id, lines, pack)
        except (ValueError, RayError) as error:
            # There is no keeper, or it cannot be reached: the job waits to be collected where it is.
            logger.warning("job %s is not kept: %s", self._job.id, error)
            return False


def place(record: bytes, job: JobRecord, delta: bytes, owner: str, node: str | None) -> None:
    """Make the actor of a job, unless it is there; it waits for a place when all are taken, then begins.

    It goes to `node` where that has a place, else to any other.
    """
    resources = {SLOT: 1.0, **({SHELL: 1.0} if job.needs.shell else {})}
    actor = JobActor.options(  # type: ignore[attr-defined]
        name=_name(job.id, owner),
        namespace=NAMESPACE,
        lifetime="detached",
        get_if_exists=True,
        num_cpus=0,
        resources=resources,
        scheduling_strategy="DEFAULT"
        if node is None
        else NodeAffinitySchedulingStrategy(node, soft=True, _spill_on_unavailable=True),
    ).remote(record, delta, owner)
    actor.begin.remote()


def find(id: str, owner: str) -> Any:
    """The actor of an owner's job; `ValueError` when there is none any more."""
    return ray.get_actor(_name(id, owner), namespace=NAMESPACE)


def _name(id: str, owner: str) -> str:
    # Whoever does not own a job cannot even name it.
    return f"job-{owner}-{id}"


def repository_key(owner: str, job: JobRecord) -> str:
    """What stands for a repository of an owner's."""
    return f"{owner}/{job.needs.repository}"


def _tell_place(repository: str) -> None:
    """Let the next jobs of a repository know that this node has its base, or is about to."""
    with contextlib.suppress(ValueError, RayError):
        keeper = ray.get_actor(KEEPER, namespace=NAMESPACE)
        ray.get(keeper.went.remote(repository, ray.get_runtime_context().get_node_id()), timeout=_TELL_S)


def _keep(owner: str, id: str, lines: bytes, pack: bytes) -> bool:
    keeper = ray.get_actor(KEEPER, namespace=NAMESPACE)
    return bool(ray.get(keeper.put.remote(owner, id, lines, pack), timeout=_KEEP_S))


def _write(file: Path, data: bytes) -> None:
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    file.write_bytes(data)


def _place() -> str:
    return f"{socket.gethostname()}/{ray.get_runtime_context().get_node_id()[:8]}"


def _end() -> None:
    # An actor that nobody collected would hold its slot for ever.
    os._exit(0)
