"""A run that is carried out somewhere else: what is sent, what comes back, and the two protocols between.

Records are JSON of one version; fields of later ones are kept and passed on. Nothing in a record is code, a key or a
path of the sender's machine: agents are settings, models are names of the worker's own configuration. An `Executor`
takes jobs, a `JobHandle` follows one; `dispatches/` carries a job's events on, whoever executes it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any, Final, Literal, Protocol

from pydantic import ConfigDict, Field

from outpost_lsp.domain.finding import Finding, Span
from outpost_lsp.domain.record import Record, SafeInt
from outpost_lsp.domain.run import RunError, RunKind
from outpost_lsp.domain.usage import ZERO, Usage

VERSION: Final = 1
MOST_RECORD_BYTES: Final = 8 * 1024 * 1024
"""Of a job's record, and of one event."""

JobEventKind = Literal[
    "base-needed", "started", "observation", "transcript", "question", "steered", "result", "cancelled", "lost"
]
LAST_KINDS: Final[frozenset[JobEventKind]] = frozenset(("result", "cancelled", "lost"))
"""One of them ends the events of a job."""


class _Kept(Record):
    """A record that keeps what a later version says besides."""

    model_config = ConfigDict(extra="allow")


class JobScope(_Kept):
    """What a review looks at, as data: the findings tool of the worker is made of it."""

    changed: Mapping[str, tuple[tuple[int, int], ...]] | None = None
    """By path, the changed lines as half-open ranges of 0-based lines; absent where the scope is no change."""
    paths: tuple[str, ...] = ()
    span: Span | None = None
    outside: Literal["hint", "drop", "keep"] = "hint"
    max_findings: int = 100
    min_confidence: float = 0.0
    exclude: tuple[str, ...] = ()
    """Patterns of gitignore."""
    dismissed: tuple[Finding, ...] = ()
    """Findings that people dismissed before, each with its dismissal."""


class JobNeeds(_Kept):
    """What a worker must have for the job."""

    shell: bool = False
    repository: str = ""
    """Stands for the repository, the same for all its jobs: the base of one job serves the next."""


class JobRecord(_Kept):
    """A run as it is sent. The delta travels beside it, as bytes."""

    version: Literal[1] = 1
    id: str = Field(pattern=r"^[0-9A-Za-z][0-9A-Za-z._-]{0,99}$")
    kind: RunKind
    agent: str
    settings: Mapping[str, Any] = Field(default_factory=dict)
    """Tables of the configuration that say what the agent is; the worker reads them as it reads an untrusted folder's."""
    limits: Mapping[str, Any] | None = None
    """Single limits of the agent that are replaced."""
    brief: str
    scope: JobScope | None = None
    base: str = ""
    """The commit that a base pack brings; empty when the snapshot itself does."""
    snapshot: str = ""
    """The commit that the agent works on."""
    tree: str = ""
    commits: tuple[str, ...] = ()
    """What the delta brings: the snapshot, and the commits that the brief names."""
    conversation: tuple[str, ...] = ()
    """The lines of the conversation that is gone on with."""
    fork: bool = False
    needs: JobNeeds = JobNeeds()
    verbose: bool = False
    detach: bool = False
    """Whether the job goes on when nobody has read its events for the lease."""
    lease_s: float = Field(default=120, gt=0)


class JobEvent(_Kept):
    """One thing that happened to a job, numbered from 1 without a gap."""

    seq: SafeInt
    kind: JobEventKind
    data: Mapping[str, Any] = Field(default_factory=dict)
    """`base-needed`: the worker waits for the base of the repository. `observation`: the journal's line. `transcript`: `conversation` and `lines`. `question`: `id` and what is asked.
    `steered`: `id` and `mode` or `error`. `started`: `worker`. `result`: a `JobResult`. `lost`: `message`."""


class JobResult(_Kept):
    """How the run ended on the worker."""

    text: str = ""
    error: RunError | None = None
    usage: Usage = ZERO
    models: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    conversation: str | None = None
    commit: str = ""
    """What the agent made of the snapshot; empty when it changed nothing."""
    tree: str = ""


class JobHandle(Protocol):
    """A job that was taken."""

    def events(self, after: int = 0) -> AsyncGenerator[JobEvent, None]:
        """What happened after the event of that number, in order, to the last one."""
        ...

    async def steer(self, id: str, text: str, subagent: str | None, *, to_anyone: bool) -> None:
        """Send an instruction; a `steered` event with its id tells how it was received."""
        ...

    async def answer(self, question: str, answer: str) -> None:
        """Answer a permission question: `allow`, `allow-run` or `deny`. No answer is deny."""
        ...

    async def result_pack(self) -> bytes:
        """The objects of the result, once it was told; they are hostile input."""
        ...

    async def cancel(self) -> None:
        """Ask the job to end; its events end with `cancelled`."""
        ...

    async def aclose(self) -> None:
        """Nobody follows the job any more."""
        ...


class Executor(Protocol):
    """Whoever carries jobs out."""

    @property
    def name(self) -> str:
        """How people call it."""
        ...

    async def submit(self, job: JobRecord, delta: bytes, base: BasePack) -> JobHandle:
        """Hand a job over, at most once for its id. `base` gives the pack to a worker that lacks it."""
        ...


class BasePack(Protocol):
    """The pack of a job's base, made when a worker asks for it."""

    async def file(self) -> Path:
        """The file that holds the pack."""
        ...
