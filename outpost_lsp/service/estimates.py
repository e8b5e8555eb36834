"""What a review of a whole workspace will take at least, told before it starts: money goes fast there.

An estimate counts every file once, at about four bytes a token, with the prices of the models that the reviewing agent
and those below it may use. Steps and answers come on top, so it is a floor and says so. Faces show it and ask.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from anyio import to_thread

from outpost_lsp.config.schema import Settings
from outpost_lsp.config.services import ModelSettings
from outpost_lsp.worktrees.git import Repository, run_git

_BYTES_A_TOKEN: Final = 4
_LONGEST_LISTING: Final = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Estimate:
    """Reading `files` files once. `amounts` is what that costs, by the name of each model that has a price."""

    files: int
    tokens: int
    amounts: tuple[tuple[str, float], ...]
    unpriced: tuple[str, ...]
    currency: str

    @property
    def text(self) -> str:
        """The estimate in one sentence for people."""
        priced = ", ".join(f"{amount:,.2f} {self.currency} with {name}" for name, amount in self.amounts)
        unknown = f" ({', '.join(self.unpriced)} may be used too, at a price nobody named)" if self.unpriced else ""
        files = "1 file" if self.files == 1 else f"{self.files:,} files"
        return (
            f"reviewing {files} means reading about {self.tokens:,} tokens once, at about {priced}{unknown}; steps and "
            "answers come on top"
        )


async def files_and_bytes(repository: Repository, commit: str, paths: Sequence[str]) -> tuple[int, int]:
    """How many files a commit holds below the paths, and their bytes together."""
    arguments = ["ls-tree", "-r", "-l", "-z", "--full-tree", commit, "--", *paths]
    listing = await run_git(repository, arguments, check=True, max_output=_LONGEST_LISTING)
    sizes = [entry.partition(b"\t")[0].split()[-1] for entry in listing.stdout.split(b"\0") if entry.startswith(b"100")]
    known = [int(size) for size in sizes if size.isdigit()]
    return len(known), sum(known)


async def folder_files_and_bytes(folder: Path, paths: Sequence[str]) -> tuple[int, int]:
    """The same for a folder that is no repository."""

    def walk() -> Iterator[int]:
        for start in [folder / path for path in paths] or [folder]:
            if start.is_file():
                yield start.stat().st_size
            for top, _, names in os.walk(start):
                for name in names:
                    try:
                        yield (Path(top) / name).lstat().st_size
                    except OSError:
                        continue

    sizes = await to_thread.run_sync(lambda: list(walk()))
    return len(sizes), sum(sizes)


def estimate(settings: Settings, agent: str, files: int, size: int) -> Estimate | None:
    """The estimate for an agent of the settings; `None` when no model that it may use has a price."""
    tokens = size // _BYTES_A_TOKEN
    amounts: dict[str, float] = {}
    unpriced: list[str] = []
    currency = ""
    for model in _models(settings, agent, set()):
        if model.price is not None:
            currency = model.price.currency
            amounts[model.name] = tokens * model.price.input / 1_000_000
        elif settings.providers[model.provider].kind != "offline":
            unpriced.append(model.name)
    if not amounts:
        return None
    return Estimate(files, tokens, tuple(sorted(amounts.items(), key=lambda one: one[1])), tuple(unpriced), currency)


def _models(settings: Settings, agent: str, seen: set[str]) -> Iterator[ModelSettings]:
    """Every model that the agent and those below it may use."""
    if agent in seen or agent not in settings.agents:
        return
    seen.add(agent)
    declared = settings.agents[agent]
    if declared.kind == "built-in":
        names = [declared.model or settings.default_model]
        if declared.routing is not None:
            names = list(settings.routing[declared.routing].models.values())
        yield from (settings.models[name] for name in dict.fromkeys(names))
    for other in (*declared.subagents, *(declared.candidates or ())):
        yield from _models(settings, other, seen)
