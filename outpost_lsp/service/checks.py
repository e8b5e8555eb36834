"""What a person should know when something does not work: the checks of the doctor (DOC rules).

No model request is made: a service is only seen to take connections, access to it is never verified here, and keys are
looked up but never shown. A probe that fails is a failed check, not an exception, and none takes longer than its deadline.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal
from urllib.parse import urlsplit

import anyio
from anyio import to_thread

from outpost_lsp.config.keys import key_variable, public_url
from outpost_lsp.config.services import ProviderSettings
from outpost_lsp.config.tracing import EXTRA_MISSING, collector, has_extra
from outpost_lsp.decisions.rules import RULES, shipped_record
from outpost_lsp.domain.markdown import one_line
from outpost_lsp.domain.wording import count_of
from outpost_lsp.errors import OutpostError
from outpost_lsp.models.rule_based.analysis import SourceText
from outpost_lsp.reviews.rules import RuleAnalyser
from outpost_lsp.sandbox.confinement import probe_confinement
from outpost_lsp.service.cleaning import dead_worktrees
from outpost_lsp.service.face_check import face_check
from outpost_lsp.service.reaching import why_not_reached
from outpost_lsp.service.sandbox_checks import sandbox_checks
from outpost_lsp.storage.identifiers import new_run_id, now_text
from outpost_lsp.storage.layout import Layout
from outpost_lsp.storage.locks import LockFolder
from outpost_lsp.storage.private_files import storage_fault
from outpost_lsp.worktrees.git import OLDEST_GIT, git_version
from outpost_lsp.worktrees.registration import owner_of
from outpost_lsp.worktrees.repository import administrative_directories, registered_directory
from outpost_lsp.worktrees.snapshot import head_commit

if TYPE_CHECKING:
    from outpost_lsp.service.outpost import Outpost
    from outpost_lsp.service.workspace import Workspace

Status = Literal["ok", "warn", "fail"]
_DEADLINE_S: Final = 30.0
_STALE_LOCK_S: Final = 24 * 60 * 60


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at; `detail` says what was found and, when it is wrong, what helps."""

    name: str
    status: Status
    detail: str


async def diagnose(outpost: Outpost, workspace: Workspace) -> list[Check]:
    """Every check for a workspace, in the order in which one depends on another; of one that cannot be opened, why."""
    try:
        await workspace.ready()
    except OutpostError as fault:
        return [check async for check in _first_checks(outpost.layout, fault)]
    return [check async for check in _checks(outpost, workspace)]


async def _first_checks(layout: Layout, fault: OutpostError) -> AsyncIterator[Check]:
    yield await _guarded("git", _git)
    folders = [
        await _guarded("state folder", lambda: _folder(layout.state, "state folder")),
        await _guarded("cache folder", lambda: _folder(layout.cache, "cache folder")),
    ]
    for check in folders:
        yield check
    if all(check.status != "fail" for check in folders):
        yield Check("workspace", "fail", fault.message)
    yield await _guarded("offline reviewer", _offline)


async def _checks(outpost: Outpost, workspace: Workspace) -> AsyncIterator[Check]:
    yield await _guarded("git", _git)
    yield await _guarded("repository", lambda: _repository(workspace))
    if workspace.has_repository:
        for check in await _in_a_sandbox(outpost, workspace):
            yield check
        yield await _guarded("leftovers", lambda: _leftovers(workspace))
        yield await _guarded("others' leftovers", lambda: _others_leftovers(workspace))
    yield await _guarded("locks", lambda: _locks(workspace))
    yield await _guarded("state folder", lambda: _folder(outpost.layout.state, "state folder"))
    yield await _guarded("cache folder", lambda: _folder(outpost.layout.cache, "cache folder"))
    yield await _guarded("offline reviewer", _offline)
    yield await _guarded("confinement", lambda: _confinement(outpost, workspace))
    for check in _configuration(workspace):
        yield check
    yield await _guarded("clock", lambda: _clock(workspace))
    async for check in _services(outpost, workspace):
        yield check
    if workspace.settings.runs.ray.url:
        yield await _guarded("face", lambda: _face(outpost, workspace))


async def _guarded(name: str, probe: Callable[[], Awaitable[Check]]) -> Check:
    try:
        with anyio.fail_after(_DEADLINE_S):
            return await probe()
    except TimeoutError:
        return Check(name, "fail", f"no answer within {_DEADLINE_S:.0f} s")
    except OutpostError as error:
        return Check(name, "fail", error.message)
    except OSError as error:
        return Check(name, "fail", f"{error.filename or name}: {error.strerror or error}")


async def _git() -> Check:
    version = await git_version()
    found, needed = (".".join(map(str, numbers)) for numbers in (version, OLDEST_GIT))
    if version < OLDEST_GIT:
        return Check("git", "fail", f"git {found} is too old; install git {needed} or newer")
    return Check("git", "ok", f"git {found}")


async def _repository(workspace: Workspace) -> Check:
    repository = workspace.repository
    head = await head_commit(repository)
    state = f"HEAD is {head[:12]}" if head else "no commit yet"
    return Check("repository", "ok", f"{repository.top}, {state}")


async def _in_a_sandbox(outpost: Outpost, workspace: Workspace) -> list[Check]:
    """Makes a snapshot and a worktree of it in the cache folder, looks around in it, and takes it away again."""
    found: list[Check] = []

    async def look() -> Check:
        found.extend([Check(*check) async for check in sandbox_checks(outpost, workspace)])
        return found.pop(0)

    return [await _guarded("worktree", look), *found]


async def _locks(workspace: Workspace) -> Check:
    stale = await to_thread.run_sync(LockFolder(workspace.layout.locks).stale)
    if not stale:
        return Check("locks", "ok", "no lock of a process that died")
    return Check(
        "locks",
        "warn",
        f"{count_of(len(stale), 'lock')} of processes that died, which block nobody; see outpost-lsp clean",
    )


async def _leftovers(workspace: Workspace) -> Check:
    can_go, kept = await dead_worktrees(workspace)
    told = []
    if can_go:
        count = count_of(len(can_go), "worktree")
        told.append(f"{count} of processes that died: {_named([one.path for one in can_go])}; see outpost-lsp clean")
    if kept:
        told.append(
            f"no run leads to what is in {_named(kept)}: take out what you need, then git worktree remove -f -f, by name"
        )
    if told:
        return Check("leftovers", "warn", "; ".join(told))
    pending = sum(run.disposition == "pending" for run in workspace.runs.list())
    waiting = f"; {count_of(pending, 'run has', 'runs have')} changes to apply or discard" if pending else ""
    return Check("leftovers", "ok", f"no worktree of a process that died{waiting}")


def _named(folders: Sequence[Path]) -> str:
    return ", ".join(map(str, folders[:5])) + (" …" if len(folders) > 5 else "")


async def _others_leftovers(workspace: Workspace) -> Check:
    """What other programs left in the repository; it is named and never touched."""
    repository = workspace.repository
    gone = [
        directory
        for entry in administrative_directories(repository.common_dir)
        if owner_of(entry) is None
        and (directory := registered_directory(entry)) is not None
        and not (directory / ".git").exists()
    ]
    locks = [
        lock
        for lock in sorted({repository.git_dir / "index.lock", repository.common_dir / "packed-refs.lock"})
        if lock.exists() and time.time() - lock.stat().st_mtime > _STALE_LOCK_S
    ]
    told = [
        *(f"{lock} is older than a day: delete it when no git command runs" for lock in locks),
        *(f"the worktree {directory} is missing or incomplete: see git worktree list" for directory in gone[:5]),
        *([f"{count_of(len(gone) - 5, 'more worktree is', 'more worktrees are')} missing"] if len(gone) > 5 else []),
    ]
    return Check("others' leftovers", "warn" if told else "ok", "; ".join(told) or "no old lock, no missing worktree")


async def _folder(folder: Path, name: str) -> Check:
    probe = anyio.Path(folder) / f".doctor-{new_run_id()}"
    try:
        await anyio.Path(folder).mkdir(mode=0o700, parents=True, exist_ok=True)
        await probe.write_bytes(b"")
        await probe.unlink()
    except OSError as error:
        variable = "OUTPOST_STATE_DIR" if name == "state folder" else "OUTPOST_CACHE_DIR"
        raise OutpostError(
            "workspace", f"{storage_fault(error, folder).message}, or choose another with {variable}"
        ) from error
    free_mib = shutil.disk_usage(folder).free // (1024 * 1024)
    status: Status = "ok" if free_mib >= 200 else "warn"
    return Check(name, status, f"{folder}, {free_mib:,} MiB free")


async def _offline() -> Check:
    [found] = await RuleAnalyser()([SourceText("probe.py", "value = undefined_name\n")])
    if not found:
        return Check(
            "offline reviewer", "fail", "its rules find nothing in a text that has a fault; install ruff again"
        )
    return Check("offline reviewer", "ok", f"its rules work ({found[0].rule} was found where it had to be)")


async def _confinement(outpost: Outpost, workspace: Workspace) -> Check:
    found = await probe_confinement(path=outpost.environment.get("PATH", ""))
    mode = workspace.settings.sandbox.shell
    if found.is_available:
        return Check("confinement", "ok", f"bubblewrap works; sandbox.shell is {mode}")
    # Without confinement nothing breaks as long as nobody asked for it.
    return Check("confinement", "fail" if mode == "confined" else "warn", found.reason)


def _configuration(workspace: Workspace) -> Iterator[Check]:
    for fault in workspace.faults:
        yield Check("configuration", "fail", fault)
    if not workspace.faults:
        yield Check("configuration", "ok", f"agents: {', '.join(workspace.settings.agents)}")
    trust = workspace.loaded.trust
    yield Check("trust", "ok", "trusted" if trust.is_trusted else f"not trusted: {trust.reason}")


async def _clock(workspace: Workspace) -> Check:
    """Certificates, the end of dismissals and the order of runs go by it."""
    now = now_text()
    last = max((run.started_at for run in workspace.runs.list(limit=1)), default="") if workspace.has_repository else ""
    if last > now_text(datetime.now(UTC) + timedelta(minutes=5)):
        return Check("clock", "warn", f"it says {now}, and a run began at {last}: set the clock of this machine")
    return Check("clock", "ok", f"it says {now}")


async def _face(outpost: Outpost, workspace: Workspace) -> Check:
    if outpost.offline:
        return Check("face", "ok", "not asked: everything is offline")
    return Check(*await face_check(workspace.settings.runs, outpost.environment))


async def _services(outpost: Outpost, workspace: Workspace) -> AsyncIterator[Check]:
    settings = workspace.settings
    reach = partial(_reached, outpost, workspace)
    for name, provider in settings.providers.items():
        if provider.kind != "offline":
            check = _service(f"provider {name}", provider.base_url, _provider_key(outpost, provider))
            yield await reach(check, provider.base_url or public_url(provider.kind))
    for name, decider in settings.deciders.items():
        if decider.kind == "rules":
            yield _rules(name)
        else:
            check = _service(f"decider {name}", decider.base_url, _key(outpost, decider.api_key_env))
            yield await reach(check, decider.base_url or "")
    if settings.telemetry.enabled:
        yield _telemetry(outpost, workspace)


async def _reached(outpost: Outpost, workspace: Workspace, check: Check, base_url: str) -> Check:
    """The check of a service, with what became of a connection to it; a machine may be away from its network for a while."""
    if check.status == "fail" or outpost.offline or not base_url:
        return check
    told = await why_not_reached(base_url, workspace.settings.http.proxy)
    return Check(check.name, "warn", f"{check.detail}; {told}") if told else check


def _rules(name: str) -> Check:
    counts = shipped_record().values()
    right, seen = sum(right for right, _ in counts), sum(seen for _, seen in counts)
    record = f"right in {right:,} of {seen:,} labelled steps"
    return Check(f"decider {name}", "ok", f"a heuristic: {len(RULES)} fixed rules, no model and no service; {record}")


def _telemetry(outpost: Outpost, workspace: Workspace) -> Check:
    if workspace.services.tracing is None:
        return Check("telemetry", "ok", "no spans are sent: everything is offline")
    if not has_extra():
        return Check("telemetry", "fail", EXTRA_MISSING)
    try:
        place = collector(workspace.settings, outpost.environment)
    except OutpostError as error:
        return Check("telemetry", "fail", error.message)
    content = "with" if workspace.settings.telemetry.content else "without"
    return Check("telemetry", "ok", f"spans go to {place}, {content} content")


def _provider_key(outpost: Outpost, provider: ProviderSettings) -> tuple[Status, str]:
    if provider.api_key_command is not None:
        return "ok", f"its key is printed by {one_line(provider.api_key_command[0], 100)}, which was not run"
    return _key(outpost, key_variable(provider), can_ask=outpost.can_ask_for_keys)


def _key(outpost: Outpost, variable: str, *, can_ask: bool = False) -> tuple[Status, str]:
    """What is known of a key; never the key."""
    if not variable:
        return "ok", "no key"
    if outpost.environment.get(variable, "").strip():
        return "ok", f"{variable} is set"
    missing = f"the environment variable {variable} is not set"
    return ("warn", f"{missing}; the editor will be asked for the key") if can_ask else ("fail", missing)


def _service(name: str, base_url: str | None, key: tuple[Status, str]) -> Check:
    parts = urlsplit(base_url or "")
    if base_url is not None and (parts.scheme not in ("http", "https") or not parts.hostname):
        return Check(name, "fail", f"base_url {base_url!r} is no http or https address")
    status, told = key
    if status == "fail":
        return Check(name, status, told)
    place = f"{parts.scheme}://{parts.netloc}" if base_url is not None else "the public service"
    return Check(name, status, f"{place}, {told}; access was not verified")
