"""The records of runs, one file each, newest first by name.

A record is replaced as a whole at every change, and says which process carries the run while it is not finished: a
record whose process is dead is an interrupted run (U-14). Beside it may stand details that only the product needs, such
as where its worktree and its frozen changes are.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from outpost_lsp.domain.run import Run, RunStatus
from outpost_lsp.domain.usage import ZERO, Usage
from outpost_lsp.errors import OutpostError
from outpost_lsp.storage.identifiers import check_id, is_safe_id, now_text
from outpost_lsp.storage.json_lines import MANGLED_SUFFIX, encoded, parse_object, tolerant
from outpost_lsp.storage.locks import exclusive
from outpost_lsp.storage.owners import Owner, owner_in, record_of, this_process
from outpost_lsp.storage.presence import Presence, sweep
from outpost_lsp.storage.private_files import private_folder, read_private, replace_private

_log = logging.getLogger(__name__)
_RUN_SUFFIX: Final = ".json"
_DETAILS_SUFFIX: Final = ".details"
_ELSEWHERE: Final = "elsewhere"
"""In the place of the process that carries a run."""


@dataclass(frozen=True, slots=True)
class Spent:
    """What runs used together. `amounts` is by currency; `has_all_costs` is false when a run's cost is not whole."""

    usage: Usage
    amounts: Mapping[str, float]
    has_all_costs: bool


@dataclass(frozen=True, slots=True)
class _Stored:
    signature: tuple[int, int, int]
    run: Run
    owner: Owner | None
    is_elsewhere: bool = False


class RunStore:
    """The runs of a repository."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._known: dict[str, _Stored] = {}
        self._presence: Presence | None = None

    def save(self, run: Run) -> None:
        """Write a record. While the run is not finished this process is its owner."""
        owner = b"null"
        if not run.is_finished:
            private_folder(self.folder)
            # Held for as long as the store is there: whoever shares the folder sees by it that its runs go on.
            self._presence = self._presence or Presence(self.folder)
            owner = json.dumps(record_of(this_process(), self._presence)).encode()
        self._write(run, owner)

    def save_elsewhere(self, run: Run) -> None:
        """Write the record of a run that no process of this machine carries: none that dies interrupts it."""
        self._write(run, json.dumps(_ELSEWHERE).encode())

    def _write(self, run: Run, owner: bytes) -> None:
        private_folder(self.folder)
        content = b'{"version":1,"owner":' + owner + b',"run":' + encoded(run) + b"}\n"
        replace_private(self._path(run.id), content)

    def load(self, id: str) -> Run | None:
        """The record of a run; `None` when there is none, or what is there is no record."""
        stored = self._stored(id) if is_safe_id(id) else None
        return stored.run if stored is not None else None

    def list(self, limit: int | None = None, status: RunStatus | None = None) -> list[Run]:
        """Records, newest first."""
        found: list[Run] = []
        for stored in self._newest_first():
            if limit is not None and len(found) >= limit:
                break
            if status is None or stored.run.status == status:
                found.append(stored.run)
        return found

    def update(self, id: str, change: Callable[[Run], Run]) -> Run:
        """Change a record that another process may be changing, too; `configuration` when there is none."""
        private_folder(self.folder)
        with exclusive(self.folder / ".lock"):
            run = self.load(check_id(id, "run"))
            if run is None:
                raise OutpostError("configuration", f"there is no run {id!r}", {"runId": id})
            changed = change(run)
            self.save(changed)
        return changed

    def mark_interrupted(self, told: Callable[[Run], Run] | None = None) -> tuple[Run, ...]:
        """Mark what dead processes left unfinished; those runs, newest first.

        `told` completes a record with what is known besides.
        """
        marked = []
        for stored in self._newest_first():
            if stored.run.is_finished or stored.is_elsewhere or (stored.owner is not None and stored.owner.is_alive):
                continue
            run = stored.run if told is None else told(stored.run)
            run = run.model_copy(update={"status": "interrupted", "finished_at": now_text()})
            self.save(run)
            marked.append(run)
        sweep(self.folder)
        return tuple(marked)

    def spent(self, since: str, *, workspace: str | None = None) -> Spent:
        """What the runs begun at or after `since` used together, replays left out (they spend nothing)."""
        usage, amounts, has_all_costs = ZERO, dict[str, float](), True
        for stored in self._newest_first():
            run = stored.run
            if run.started_at < since:
                break
            if run.kind == "replay" or (workspace is not None and run.workspace != workspace):
                continue
            usage = usage + run.usage
            if run.cost is not None:
                amounts[run.cost.currency] = amounts.get(run.cost.currency, 0.0) + run.cost.amount
            has_all_costs = has_all_costs and run.cost is not None and run.cost.complete
        return Spent(usage, amounts, has_all_costs)

    def save_details(self, id: str, details: Mapping[str, Any]) -> None:
        """Keep what only the product needs to know of a run; replaces what was kept before."""
        private_folder(self.folder)
        replace_private(self._path(id, _DETAILS_SUFFIX), json.dumps(details).encode() + b"\n")

    def details(self, id: str) -> dict[str, Any]:
        """What `save_details` kept; empty when nothing was."""
        try:
            return parse_object(read_private(self._path(id, _DETAILS_SUFFIX))) or {}
        except FileNotFoundError:
            return {}

    def remove(self, id: str) -> bool:
        """Forget a run; whether there was one."""
        self._known.pop(id, None)
        self._path(id, _DETAILS_SUFFIX).unlink(missing_ok=True)
        path = self._path(id)
        found = path.exists()
        path.unlink(missing_ok=True)
        return found

    def _newest_first(self) -> Iterator[_Stored]:
        try:
            names = sorted((path.name for path in self.folder.iterdir() if path.suffix == _RUN_SUFFIX), reverse=True)
        except FileNotFoundError:
            return
        for name in names:
            stored = self._stored(name.removesuffix(_RUN_SUFFIX))
            if stored is not None:
                yield stored

    def _stored(self, id: str) -> _Stored | None:
        path = self._path(id)
        try:
            status = path.lstat()
            signature = (status.st_mtime_ns, status.st_size, status.st_ino)
            known = self._known.get(id)
            if known is not None and known.signature == signature:
                return known
            content = read_private(path)
        except FileNotFoundError:
            self._known.pop(id, None)
            return None
        try:
            stored = _parsed(content, signature, self.folder)
        except ValueError as error:
            # A damaged record costs itself only; out of the way, it is reported this one time.
            _log.warning("%s is no run record and was put aside: %s", path, str(error).splitlines()[0])
            with suppress(FileNotFoundError):
                path.rename(path.with_name(path.name + MANGLED_SUFFIX))
            return None
        self._known[id] = stored
        return stored

    def _path(self, id: str, suffix: str = _RUN_SUFFIX) -> Path:
        return self.folder / f"{check_id(id, 'run')}{suffix}"


def _parsed(content: bytes, signature: tuple[int, int, int], folder: Path) -> _Stored:
    value = parse_object(content)
    if value is None:
        raise ValueError("no JSON object")
    owner = value.get("owner")
    run = tolerant(Run, value.get("run"))
    return _Stored(signature, run, owner_in(owner, folder), owner == _ELSEWHERE)
