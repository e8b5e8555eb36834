"""One folder that somebody works in: its repository, its settings, its findings and its runs.

The repository is found, the findings of earlier sessions are placed and what a dead process left is marked in `ready`,
which every operation awaits. A folder that is no repository is a workspace all the same: it has settings, and a fault
that says why nothing can run there. Made by `Outpost.add_workspace`.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outpost_lsp.config.environment import user_settings
from outpost_lsp.config.prices import price_table
from outpost_lsp.config.providers import Services
from outpost_lsp.config.schema import Settings
from outpost_lsp.config.sources import ClientSettings, LoadedSettings, load_settings
from outpost_lsp.config.trust import TrustStore, decide_trust
from outpost_lsp.domain.finding import Finding, FindingStatus
from outpost_lsp.domain.run import Run
from outpost_lsp.errors import OutpostError, configuration
from outpost_lsp.sandbox.landing_record import settle_landings
from outpost_lsp.service.board import FindingBoard
from outpost_lsp.service.interrupted import as_its_journal_tells
from outpost_lsp.service.reaping import clear_what_the_dead_left
from outpost_lsp.service.signals import FindingsChanged, Notice, RunChanged
from outpost_lsp.service.view import Standing
from outpost_lsp.service.watching import watch
from outpost_lsp.storage.conversations import ConversationStore
from outpost_lsp.storage.findings import FindingStore
from outpost_lsp.storage.layout import RepositoryLayout
from outpost_lsp.storage.runs import RunStore
from outpost_lsp.worktrees.git import Repository, find_repository

if TYPE_CHECKING:
    from outpost_lsp.service.outpost import Outpost

logger = logging.getLogger(__name__)


class Workspace:
    """A workspace folder. Paths of findings and documents are relative to the repository's top, in POSIX form."""

    layout: RepositoryLayout
    """Known once `ready` has returned, as are the next three."""
    runs: RunStore
    conversations: ConversationStore
    board: FindingBoard

    def __init__(
        self,
        outpost: Outpost,
        folder: Path,
        *,
        client_settings: Mapping[str, Any] | None = None,
        trusted: bool | None = None,
    ) -> None:
        self.folder = folder
        self._outpost = outpost
        self._client_settings = client_settings
        self._trusted = trusted
        self._repository: Repository | None = None
        self._repository_fault: OutpostError | None = None
        self._opening: asyncio.Task[None] | None = None
        self._reaping: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._told_refusals: set[str] = set()
        self.can_confine = False
        """Whether commands can run confined; looked up when the settings ask for it."""
        self._loaded = self._load(None)
        self._services = outpost.make_services(self._loaded.settings)
        self._retired: list[Services] = []

    # Settings

    @property
    def loaded(self) -> LoadedSettings:
        """The settings in force with where each comes from."""
        return self._loaded

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self._loaded.settings

    @property
    def faults(self) -> tuple[str, ...]:
        """What was wrong with the settings that were refused; the last good ones are in force."""
        return tuple(str(fault) for fault in self._loaded.faults)

    @property
    def services(self) -> Services:
        """The providers and deciders that the settings name, shared by all runs."""
        return self._services

    @property
    def is_trusted(self) -> bool:
        """Whether the folder's own settings may define programs and services."""
        return self._loaded.is_trusted

    async def reload(self, client_settings: Mapping[str, Any] | None = None, *, trusted: bool | None = None) -> None:
        """Read the settings again. What is not given stays as the client said it before."""
        if client_settings is not None:
            self._client_settings = client_settings
        if trusted is not None:
            self._trusted = trusted
        self._loaded = await asyncio.to_thread(self._load, self._loaded)
        if not self._services.serves(self._loaded.settings):
            # Runs that are going on keep the services they began with.
            self._retired.append(self._services)
            self._services = self._outpost.make_services(self._loaded.settings)
        self._outpost.slots.advance()
        self.tell_refusals()
        if self.is_ready:
            self.can_confine = await self._look_up_confinement()
            await asyncio.to_thread(self._follow_worktrees)
            self._follow_dismissals()

    def tell_refusals(self) -> None:
        """Tell what the settings tried and may not, each key once, and last what would let them."""
        told = [str(refusal) for refusal in (*self._loaded.refused, *self._loaded.warnings)]
        # An editor that has a trust of its own asks the person itself.
        if self._trusted is None and (remedy := self._loaded.remedy_of_refusals):
            told.append(f"{self.folder}: {remedy}")
        for text in told:
            if text not in self._told_refusals:
                self._told_refusals.add(text)
                self._outpost.tell(Notice("warning", text))

    def _load(self, previous: LoadedSettings | None) -> LoadedSettings:
        store = TrustStore(self._outpost.layout.state)
        return load_settings(
            user_file=user_settings(self._outpost.environment),
            folder=self.folder,
            client=[] if self._client_settings is None else [ClientSettings("client settings", self._client_settings)],
            trust=lambda digest: decide_trust(
                self.folder, digest, client=self._trusted, environment=self._outpost.environment, store=store
            ),
            previous=previous,
        )

    # The repository

    @property
    def top(self) -> Path:
        """The repository's top folder; the folder itself where there is no repository."""
        return self._repository.top if self._repository is not None else self.folder

    @property
    def has_repository(self) -> bool:
        """Whether the folder lies in a repository that can be worked on."""
        return self._repository is not None

    @property
    def repository(self) -> Repository:
        """The repository; the fault that says why there is none, otherwise. Known once `ready` has returned."""
        if self._repository is not None:
            return self._repository
        raise self._repository_fault or configuration(f"{self.folder} is not opened yet")

    def check_workable(self) -> None:
        """Raise the fault that keeps every run from working here; a plain folder is worked on as a copy (SNAP-09)."""
        fault = self._repository_fault
        if fault is not None and fault.details.get("reason") != "no-repository":
            raise fault

    def relative(self, path: Path, *, spelled: str = "") -> str:
        """A path as the repository spells it; `configuration` for one outside."""
        real = Path(os.path.realpath(path.parent)) / path.name if path.name not in ("", "..") else path.resolve()
        top = Path(os.path.realpath(self.top))
        if not real.is_relative_to(top):
            raise configuration(f"{spelled or path} is not in the repository {self.top}", path=str(path))
        text = real.relative_to(top).as_posix()
        return "" if text == "." else text

    async def ready(self) -> None:
        """Wait until the repository is known and earlier findings are placed."""
        if self._opening is None:
            self._opening = asyncio.get_running_loop().create_task(self._open())
        await asyncio.shield(self._opening)

    @property
    def is_ready(self) -> bool:
        """Whether `ready` would return at once."""
        task = self._opening
        return task is not None and task.done() and not task.cancelled() and task.exception() is None

    async def _open(self) -> None:
        try:
            self._repository = await find_repository(self.folder)
        except OutpostError as fault:
            self._repository_fault = fault
        self.can_confine = await self._look_up_confinement()
        await asyncio.to_thread(self._open_stores)
        self._follow_dismissals()
        await asyncio.to_thread(self.board.load)
        for path in await asyncio.to_thread(settle_landings, self.layout.landings):
            text = (
                f"{path} was changed after applying to it was cut short; what it held before is in {self.layout.state}"
            )
            self._outpost.tell(Notice("warning", text))
        prices = price_table(self.settings)
        for run in await asyncio.to_thread(
            self.runs.mark_interrupted, lambda run: as_its_journal_tells(run, self.journal_path(run.id), prices)
        ):
            logger.info("run %s was interrupted: its process is gone", run.id)
        self._reaping = asyncio.get_running_loop().create_task(clear_what_the_dead_left(self))
        self._watching = asyncio.get_running_loop().create_task(watch(self))
        self.tell_refusals()

    async def _look_up_confinement(self) -> bool:
        return self.settings.sandbox.shell == "confined" and await self._outpost.can_confine()

    def _lay_out(self) -> RepositoryLayout:
        common = self._repository.common_dir if self._repository is not None else self.folder
        directory = self.settings.sandbox.directory
        return self._outpost.layout.for_repository(
            common, worktrees=Path(directory).expanduser() if directory else None
        )

    def _follow_worktrees(self) -> None:
        """Look for worktrees where new ones are made from now on."""
        try:
            self.layout = self._lay_out()
        except (OutpostError, OSError) as fault:
            self._outpost.tell(Notice("warning", f"sandbox.directory: {fault}"))

    def _open_stores(self) -> None:
        self.layout = self._lay_out()
        self.layout.sweep()
        self.runs = RunStore(self.layout.runs)
        self.conversations = ConversationStore(self.layout.conversations, self.layout.locks)
        store = FindingStore(self.layout.findings_of(self.top))
        self.board = FindingBoard(
            self.top,
            store,
            lambda path: self._outpost.tell(FindingsChanged(self, path)),
            lambda fault: self._outpost.tell(Notice("warning", f"{self.top}/{fault}")),
        )

    async def cleared(self) -> None:
        """Wait until what dead processes left of this repository is cleared away."""
        await self.ready()
        if self._reaping is not None:
            await asyncio.wait({self._reaping})

    def _follow_dismissals(self) -> None:
        shared = self.settings.review.dismissals == "shared" and self.is_trusted and self._repository is not None
        self.board.follow_dismissals(shared=shared)

    async def aclose(self) -> None:
        """Stop what is going on in it, and write down what is not yet on disk."""
        tasks = [
            task for task in (self._opening, self._reaping, self._watching) if task is not None and not task.done()
        ]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        if self.is_ready:
            self.board.flush()
        for services in (*self._retired, self._services):
            await services.aclose()

    def change_run(self, run_id: str, **changes: Any) -> Run:
        """Change the record of a run that has ended, and tell about it."""
        handle = self._outpost.handle(run_id)
        if handle is not None:
            return handle.update(**changes)
        run = self.runs.update(run_id, lambda run: run.model_copy(update=changes))
        self._outpost.tell(RunChanged(run))
        return run

    def journal_path(self, run_id: str) -> Path:
        """Where the journal of a run is."""
        return self.layout.journals / f"{run_id}.jsonl"

    # Findings

    def paths_with_findings(self) -> list[str]:
        """The files that have findings."""
        return self.board.paths() if self.is_ready else []

    def findings(self, path: str | None = None, status: FindingStatus | None = None) -> list[Finding]:
        """Findings as they stand now, by path and place."""
        return self.board.listing(path, status) if self.is_ready else []

    def finding(self, finding_id: str) -> Finding | None:
        """One finding by its id."""
        return self.board.find(finding_id) if self.is_ready else None

    def standing(self, path: str) -> list[Standing]:
        """Where the findings of a file that are diagnostics stand now, by place; cheaper than `findings`."""
        return self.board.standing(path) if self.is_ready else []

    def is_withdrawn(self, finding_id: str) -> bool:
        """Whether most of the finding's quote is gone, so that it is no diagnostic any more."""
        return self.is_ready and self.board.is_withdrawn(finding_id)

    def dismiss(self, finding_id: str, *, reason: str | None = None, until: str | None = None) -> Finding:
        """Remember that this finding is not to be shown."""
        return self.board.dismiss(finding_id, reason, until)

    def restore(self, finding_id: str) -> Finding:
        """Take a dismissal back."""
        return self.board.restore(finding_id)

    def clear(self, path: str | None = None) -> int:
        """Forget the findings of a file, or all; dismissals stay. The count of those forgotten."""
        return self.board.clear(path) if self.is_ready else 0

    def clear_earlier(self, run_id: str) -> int:
        """Forget the findings of every run before this one; dismissals stay. The count of those forgotten."""
        return self.board.clear_earlier(run_id) if self.is_ready else 0

    # Documents

    def opened(self, path: str, text: str) -> None:
        """A document is open: its text counts from now on, not the disk's."""
        if self.is_ready:
            self.board.opened(path, text)

    def edited(self, path: str, old_text: str, new_text: str) -> None:
        """A document changed: its findings move with their text, or turn stale."""
        if self.is_ready:
            self.board.edited(path, old_text, new_text)

    def closed(self, path: str) -> None:
        """A document is closed: the disk's text counts again."""
        if self.is_ready:
            self.board.closed(path)

    def changed_on_disk(self, path: str) -> None:
        """A file was written by somebody; it counts where the document is not open."""
        if self.is_ready:
            self.board.changed_on_disk(path)
