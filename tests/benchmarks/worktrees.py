"""What a run costs before and after its agent works, beside git's own: `python -m tests.benchmarks.worktrees [--files N ...]`.

Milliseconds in one process, rounds interleaved, medians. Two ratios are taken within a round, of the wall and of the
processors' time of this process and of every git it starts: the second holds on a busy machine too.
The repositories are generated below `--scratch` (a tmpfs gives stable ratios; a disk shows the disk). "Without a
command" is what an agent with file tools leaves: the product knows then which files can differ.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import resource
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Awaitable
from dataclasses import dataclass
from pathlib import Path

from outpost_lsp.domain.run import ReviewScope
from outpost_lsp.service.outpost import Outpost
from outpost_lsp.storage.layout import Layout
from outpost_lsp.worktrees.git import Repository, find_repository
from outpost_lsp.worktrees.snapshot import take_snapshot
from outpost_lsp.worktrees.worktree import Worktree, open_worktree
from tests.benchmarks.contestants.generated import make_repository
from tests.support.killed_service import settings
from tests.support.model_answers import Answer
from tests.support.model_saying import Received
from tests.support.model_server import ModelServer


@dataclass(frozen=True)
class Cost:
    """Milliseconds."""

    wall: float
    cpu: float

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.wall + other.wall, self.cpu + other.cpu)


Round = dict[str, Cost]
GOALS: dict[str, float | None] = {
    "ready to read and edit / worktree add": 0.05,
    "the same with 200 changes / worktree add": 0.20,
    "a full tree on demand / worktree add": 1.2,
    "20 edits out of it / add, write-tree, diff-tree": 0.5,
    "the same when no command ran": 0.1,
    "the same out of a full tree": None,
    "gone from view / worktree remove": 0.02,
    "to the first request / status": 1.5,
    "the same with 200 changes / status": 1.5,
}


def cpu_ms() -> float:
    """The processors' time of this process and of those that it waited for."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in both) * 1000


async def cost(work: Awaitable[object]) -> Cost:
    """What awaiting something costs."""
    start, cpu = time.perf_counter(), cpu_ms()
    await work
    return Cost((time.perf_counter() - start) * 1000, cpu_ms() - cpu)


def git(folder: Path, *arguments: str, index: Path | None = None) -> Cost:
    """What one call of git costs."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    if index is not None:
        environment["GIT_INDEX_FILE"] = str(index)
    start, cpu = time.perf_counter(), cpu_ms()
    subprocess.run(["git", "-C", str(folder), *arguments], check=True, capture_output=True, env=environment)
    return Cost((time.perf_counter() - start) * 1000, cpu_ms() - cpu)


async def a_round(repository: Repository, scratch: Path, paths: list[str], number: int) -> Round:
    """Every figure of worktrees once."""
    found: Round = {}
    theirs = scratch / f"theirs-{number}"
    found["worktree add"] = git(repository.top, "worktree", "add", "--quiet", "--detach", str(theirs))
    head = (await take_snapshot(repository, view="head")).commit
    held: list[Worktree] = []

    async def ready(name: str) -> None:
        held.append(await open_worktree(repository, head, scratch / "ours", run_id=f"{name}-{number}", fill="auto"))

    found["ready"] = await cost(ready("clean"))
    edits = random.Random(number).sample(paths, min(20, len(paths)))
    edit(theirs, edits)
    edit(held[0].directory, edits)
    index = scratch / "index"
    shutil.copy2(repository.git_dir / "worktrees" / theirs.name / "index", index)
    found["their changes"] = git(theirs, "add", "-A", index=index) + git(theirs, "write-tree", index=index)
    found["their changes"] += git(theirs, "diff-index", "-p", "--cached", "HEAD", index=index)
    found["changes without a command"] = await cost(held[0].changes(touched=edits))
    found["changes"] = await cost(held[0].changes())
    await ready("full")
    found["full"] = await cost(held[1].fill())
    edit(held[1].directory, edits)
    found["changes of all"] = await cost(held[1].changes())
    found["gone"] = await cost(held[1].close(keep=False))
    await held[0].close(keep=False)
    found["worktree remove"] = git(repository.top, "worktree", "remove", "--force", str(theirs))
    return found


def edit(folder: Path, paths: list[str]) -> None:
    """What an agent does."""
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        with (folder / path).open("a") as file:
            file.write("# edited\n")


async def to_the_first_request(
    repository: Path, scratch: Path, rounds: int, scope: ReviewScope
) -> list[tuple[Cost, Cost]]:
    """The milliseconds of `git status -uall` and those from a review's command to its first request, by round."""
    reached: list[tuple[float, float]] = []

    def answer(_request: Received) -> Answer:
        reached.append((time.perf_counter(), cpu_ms()))
        return Answer(text="Done.")

    found = []
    environment = {"PATH": os.environ["PATH"], "HOME": str(scratch), "OUTPOST_CONFIG": os.devnull}
    with ModelServer([answer] * (rounds + 2)) as server:
        async with Outpost(Layout(scratch / "state", scratch / "cache"), environment) as outpost:
            workspace = outpost.add_workspace(repository, client_settings=settings(server.base_url), trusted=True)
            await workspace.cleared()
            for _ in range(rounds + 2):
                status = git(repository, "status", "--porcelain", "-uall")
                start, cpu = time.perf_counter(), cpu_ms()
                run = await (await outpost.review(workspace, scope)).wait()
                assert run.status == "succeeded", run.error
                found.append((status, Cost((reached[-1][0] - start) * 1000, reached[-1][1] - cpu)))
    return found[2:]


async def measure(files: int, scratch: Path, rounds: int) -> dict[str, tuple[float, float, float]]:
    """By figure, the median milliseconds, and the median ratios of wall and processors' time."""
    top = scratch / f"repository-{files}"
    paths = make_repository(top, files)
    repository = await find_repository(top)
    work = scratch / f"work-{files}"
    work.mkdir()
    clean = [await a_round(repository, work, paths, number) for number in range(rounds)]
    file = ReviewScope(scope="file", paths=(paths[0],))
    reviews = await to_the_first_request(top, work, rounds, file)
    for number, path in enumerate(random.Random(1).sample(paths, min(100, len(paths)))):
        with (top / path).open("a") as opened:
            opened.write(f"# {number}\n")
        (top / f"new-{number}.py").write_text(f"# {number}\n")
    dirty = [await of_changed_work(repository, work, number) for number in range(rounds)]
    changed = await to_the_first_request(top, work, rounds, ReviewScope(scope="uncommitted"))
    added = [one["worktree add"] for one in clean]
    told = [one["their changes"] for one in clean]
    figures = [
        compared([one["ready"] for one in clean], added),
        compared(dirty, added),
        compared([one["ready"] + one["full"] for one in clean], added),
        compared([one["changes"] for one in clean], told),
        compared([one["changes without a command"] for one in clean], told),
        compared([one["changes of all"] for one in clean], told),
        compared([one["gone"] for one in clean], [one["worktree remove"] for one in clean]),
        *(compared([ours for _, ours in one], [theirs for theirs, _ in one]) for one in (reviews, changed)),
    ]
    return dict(zip(GOALS, figures, strict=True))


async def of_changed_work(repository: Repository, scratch: Path, number: int) -> Cost:
    """A snapshot of what the user changed, and a worktree of it."""
    held: list[Worktree] = []

    async def ready() -> None:
        commit = (await take_snapshot(repository)).commit
        held.append(await open_worktree(repository, commit, scratch / "ours", run_id=f"dirty-{number}", fill="auto"))

    found = await cost(ready())
    await held[0].close(keep=False)
    return found


def compared(ours: list[Cost], theirs: list[Cost]) -> tuple[float, float, float]:
    """The median milliseconds of ours, and the median ratios to theirs, round by round."""
    pairs = list(zip(ours, theirs, strict=True))
    return (
        statistics.median(one.wall for one in ours),
        statistics.median(one.wall / other.wall for one, other in pairs),
        statistics.median(one.cpu / max(other.cpu, 0.1) for one, other in pairs),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--files", type=int, nargs="+", default=[100, 10_000, 100_000])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scratch", type=Path, help="where the repositories go, 4 KB for each file, twice")
    asked = parser.parse_args()
    scratch = Path(tempfile.mkdtemp(prefix="outpost-benchmark-", dir=asked.scratch))
    os.environ |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    try:
        results = {files: asyncio.run(measure(files, scratch, asked.rounds)) for files in asked.files}
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    print("| figure | goal | " + " | ".join(f"{files:,} files: ms (wall, cpu)" for files in results) + " |")
    print("|---" * (len(results) + 2) + "|")
    for name, goal in GOALS.items():
        cells = (f"{one[name][0]:.1f} ({one[name][1]:.3f}, {one[name][2]:.3f})" for one in results.values())
        print(f"| {name} | {goal or '-'} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
