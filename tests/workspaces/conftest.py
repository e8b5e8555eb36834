"""A bench for workspaces: a real repository, the product's own folders, and agents that run shell scripts."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from outpost_lsp import Agent, Command, Harness, Layout, Tool, open_workspace
from outpost_lsp.dispatches.workspace import WorkspaceOpening
from outpost_lsp.storage.layout import RepositoryLayout
from outpost_lsp.storage.locks import LockFolder
from tests.harness.stage import calls, provider, says
from tests.support.repositories import RealRepository, make_repository

SCRIPT = {"type": "object", "properties": {"script": {"type": "string"}}, "required": ["script"]}


async def _sh(value: Any, context: Any) -> str:
    result = await context.sandbox.invoke(Command(executable="sh", arguments=["-ec", value["script"]]))
    assert result.status == 0, result.stderr
    return str(result.stdout)


def worker(*scripts: str, answer: str = "done") -> Agent:
    """An agent that runs these scripts one after another in its sandbox and then answers."""
    replies = [calls(("sh", {"script": script})) for script in scripts]
    return Agent("m", Harness(provider(*replies, says(answer)), tools=[Tool("sh", "Runs a script.", SCRIPT, _sh)]))


def commits(path: str, text: str, message: str = "work") -> str:
    """A script that writes a file and commits it."""
    return f"mkdir -p \"$(dirname '{path}')\"; printf '{text}' > '{path}'; git add -A; git commit -qm '{message}'"


@dataclass(frozen=True)
class Bench:
    """One repository and where the product keeps things about it."""

    repository: RealRepository
    layout: Layout

    @property
    def own(self) -> RepositoryLayout:
        return self.layout.for_repository(self.repository.path / ".git")

    @property
    def workspaces(self) -> Path:
        return (self.own.state / "workspaces").resolve()

    @property
    def recovery(self) -> Path:
        return (self.own.state / "recovery").resolve()

    @property
    def locks(self) -> LockFolder:
        return LockFolder(self.own.locks)

    def open(self, *policy: Any, **options: Any) -> WorkspaceOpening:
        """Ask for a workspace with this branch policy: a mode, a name."""
        from outpost_lsp import BranchPolicy

        options.setdefault("branch", BranchPolicy(*(policy or ("current",))))
        return open_workspace(self.repository.path, layout=self.layout, **options)

    def held_locks(self) -> list[str]:
        """The lock files that exist."""
        return sorted(path.name for path in self.own.locks.glob("*.json"))

    def worktrees(self) -> list[str]:
        """The worktrees that git lists, the checkout first."""
        listing = self.repository.git("worktree", "list", "--porcelain")
        return [line.removeprefix("worktree ") for line in listing.splitlines() if line.startswith("worktree ")]

    def branches(self) -> list[str]:
        """The branches of the repository."""
        return self.repository.git("for-each-ref", "--format=%(refname:short)", "refs/heads").splitlines()


def sh(directory: Path, script: str) -> str:
    """Run a script in a folder, as a person would."""
    done = subprocess.run(
        ["sh", "-ec", script], cwd=directory, capture_output=True, text=True, check=False, env=_person()
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def _person() -> dict[str, str]:
    import os

    names = {
        f"GIT_{role}_{part}": value
        for role in ("AUTHOR", "COMMITTER")
        for part, value in (("NAME", "A Person"), ("EMAIL", "person@example.invalid"))
    }
    return {**{name: value for name, value in os.environ.items() if not name.startswith("GIT_")}, **names}


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    files = {"a.txt": "one\ntwo\nthree\n", "src/main.py": "print('hello')\n", ".gitignore": "ignored/\n*.log\n"}
    repository = make_repository(tmp_path / "repo", files)
    return Bench(repository, Layout(tmp_path / "state", tmp_path / "cache"))
