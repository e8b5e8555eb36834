"""A patch from elsewhere as a commit of the product's own, so that it is reviewed like any other commit.

The patch is applied to the tree of `HEAD` through a private index: no file, index or ref of the user's is touched, and
git itself refuses names that lead out of the repository. Where `HEAD` has the change already, as in a pipeline that
checked out the branch of a merge request, the commit before it is made instead. Called by faces before they review.
"""

from __future__ import annotations

import re
from typing import Final

from outpost_lsp.errors import configuration
from outpost_lsp.worktrees.git import Repository, run_git
from outpost_lsp.worktrees.private_index import private_index, writing
from outpost_lsp.worktrees.snapshot import commit_tree, head_and_tree

LARGEST_PATCH: Final = 64 * 1024 * 1024
"""In bytes."""

_MESSAGE_LIMIT: Final = 4_000
_FIRST_FILE: Final = re.compile(rb"^(diff --git |--- |Index: |\*\*\* )", re.MULTILINE)
_APPLY: Final = ("apply", "--cached", "--whitespace=nowarn")


async def commit_of_patch(repository: Repository, patch: bytes, name: str) -> str:
    """The name of a commit whose difference to its parent is the patch; an empty patch makes an empty commit.

    `name` is how people call the patch. `configuration` when it is no patch, or fits `HEAD` neither way.
    """
    if len(patch) > LARGEST_PATCH:
        raise _refused(name, f"it is larger than {LARGEST_PATCH >> 20} MiB")
    head, tree = await head_and_tree(repository)
    message = _message(patch, name)
    if not patch.strip():
        return await _commit(repository, tree, head, message)
    forwards, why = await _applied(repository, tree, patch)
    if forwards is not None:
        return await _commit(repository, forwards, head, message)
    before, _ = await _applied(repository, tree, patch, "--reverse")
    if before is None:
        raise _refused(name, f"it fits HEAD neither forwards nor in reverse ({why}); check out what it was made from")
    parent = await _commit(repository, before, "", f"Before the patch {name}")
    return await _commit(repository, tree, parent, message)


async def _applied(repository: Repository, tree: str, patch: bytes, *options: str) -> tuple[str | None, str]:
    """The tree that the patch makes of another one, or `None` and what git says."""
    async with private_index() as index, writing(repository):
        start = ["read-tree", tree] if tree else ["read-tree", "--empty"]
        await run_git(repository, start, index=index, check=True)
        done = await run_git(repository, [*_APPLY, *options, "-"], index=index, stdin=patch)
        if done.status != 0:
            told = next((line for line in done.stderr.splitlines() if line.startswith("error: ")), done.stderr.strip())
            return None, told.removeprefix("error: ")[:300]
        written = await run_git(repository, ["write-tree"], index=index, check=True)
        return written.stdout.decode("ascii").strip(), ""


async def _commit(repository: Repository, tree: str, parent: str, message: str) -> str:
    if not tree:
        async with private_index() as index, writing(repository):
            await run_git(repository, ["read-tree", "--empty"], index=index, check=True)
            tree = (await run_git(repository, ["write-tree"], index=index, check=True)).stdout.decode("ascii").strip()
    return await commit_tree(repository, tree, parent, message)


def _message(patch: bytes, name: str) -> str:
    """What a mailed patch says of itself; else its name."""
    first = _FIRST_FILE.search(patch)
    head = patch[: first.start() if first else 0].decode("utf-8", "replace").replace("\0", "").strip()
    return head[:_MESSAGE_LIMIT] or f"Patch {name}"


def _refused(name: str, why: str) -> Exception:
    return configuration(f"--patch {name}: {why}", field="patch")
