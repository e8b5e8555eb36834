"""Making a repository of the product's own: the demo's sample, a copy of a plain folder.

Never used on a folder of the user's. No template is copied, so that no hook of the machine gets in.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from anyio import to_thread

from outpost_lsp.worktrees import hardening
from outpost_lsp.worktrees.git import Repository, run_git
from outpost_lsp.worktrees.snapshot import IDENTITY


async def create_repository(folder: Path, environment: Mapping[str, str] | None = None) -> Repository:
    """An empty repository in `folder`, which exists and is none yet. `environment` is what git sees of the host."""
    top = await to_thread.run_sync(folder.resolve)
    host = hardening.host_environment() if environment is None else environment
    git_dir = top / ".git"
    repository = Repository(top=top, git_dir=git_dir, common_dir=git_dir, environment=host)
    await run_git(repository, ["init", "--quiet", "--template=", "--initial-branch=main"], check=True)
    return repository


async def commit_all(repository: Repository, message: str) -> str:
    """Commit everything that is not ignored; the commit's id."""
    await run_git(repository, ["add", "--all"], check=True)
    await run_git(repository, ["commit", "--quiet", "--no-verify", "-m", message], environment=IDENTITY, check=True)
    return (await run_git(repository, ["rev-parse", "HEAD"], check=True)).stdout.decode("ascii").strip()
