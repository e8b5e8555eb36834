"""What a run costs before and after its agent works, beside git's own: `python -m tests.benchmarks.worktrees [--files N ...]`.

Wall milliseconds in one process, rounds interleaved, medians; a ratio is taken within a round and compared with the goal.
The repositories are generated below `--scratch` (a tmpfs gives stable ratios; a disk shows the disk). Figures of a busy
machine are ratios at best.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable
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

Round = dict[str, float]
GOALS = {
    "ready to read and edit / worktree add": 0.05,
    "the same with 200 changes / worktree add": 0.20,
    "a full tree on demand / worktree add": 1.2,
    "20 edits out of it / add, write-tree, diff-tree": 0.5,
    "the same when no command ran": 0.1,
    "gone from view / worktree remove": 0.02,
    "to the first request / status": 1.5,
    "the same with 200 changes / status": 1.5,
}


class Clock:
    """Times what is done, in milliseconds."""

    def __init__(self) -> None:
        self.ms = 0.0

    async def of(self, work: Awaitable[object]) -> float:
        start = time.perf_counter()
        await work
        return (time.perf_counter() - start) * 1000


def git(folder: Path, *arguments: str, index: Path | None = None) -> float:
    """Milliseconds of one call of git."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    if index is not None:
        environment["GIT_INDEX_FILE"] = str(index)
    start = time.perf_counter()
    subprocess.run(["git", "-C", str(folder), *arguments], check=True, capture_output=True, env=environment)
    return (time.perf_counter() - start) * 1000


async def a_round(repository: Repository, scratch: Path, paths: list[str], number: int) -> Round:
    """Every figure of worktrees once."""
    clock, found = Clock(), {}
    theirs = scratch / f"theirs-{number}"
    found["worktree add"] = git(repository.top, "worktree", "add", "--quiet", "--detach", str(theirs))
    head = (await take_snapshot(repository, view="head")).commit
    held: list[Worktree] = []

    async def ready(name: str, commit: str) -> None:
        held.append(await open_worktree(repository, commit, scratch / "ours", run_id=f"{name}-{number}", fill="auto"))

    found["ready"] = await clock.of(ready("clean", head))
    edits = random.Random(number).sample(paths, min(20, len(paths)))
    for folder in (theirs, held[0].directory):
        await held[0].fill() if folder != theirs and held[0].on_demand is None else None
        for path in edits:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            with (folder / path).open("a") as file:
                file.write("# edited\n")
    shutil.copy2(repository.git_dir / "worktrees" / theirs.name / "index", scratch / "index")
    found["their changes"] = git(theirs, "add", "-A", index=scratch / "index")
    tree = subprocess.run(
        ["git", "-C", str(theirs), "write-tree"],
        check=True,
        capture_output=True,
        env={**os.environ, "GIT_INDEX_FILE": str(scratch / "index")},
    )
    found["their changes"] += git(theirs, "write-tree", index=scratch / "index")
    found["their changes"] += git(theirs, "diff-tree", "-r", "-p", "HEAD", tree.stdout.decode().strip())
    found["changes without a command"] = await clock.of(held[0].changes(touched=edits))
    if held[0].on_demand is not None:
        await ready("full", head)
        found["full"] = await clock.of(held[1].fill())
        for path in edits:
            with (held[1].directory / path).open("a") as file:
                file.write("# edited\n")
    found["changes"] = await clock.of(held[-1].changes())
    found["gone"] = await clock.of(held[-1].close(keep=False))
    await held[0].close(keep=False)
    found["worktree remove"] = git(repository.top, "worktree", "remove", "--force", str(theirs))
    return found


async def to_the_first_request(
    repository: Path, scratch: Path, rounds: int, scope: ReviewScope
) -> list[tuple[float, float]]:
    """The milliseconds of `git status -uall` and those from a review's command to its first request, by round."""
    reached: list[float] = []

    def answer(_request: Received) -> Answer:
        reached.append(time.perf_counter())
        return Answer(text="Done.")

    found = []
    environment = {"PATH": os.environ["PATH"], "HOME": str(scratch), "OUTPOST_CONFIG": os.devnull}
    with ModelServer([answer] * (rounds + 2)) as server:
        async with Outpost(Layout(scratch / "state", scratch / "cache"), environment) as outpost:
            workspace = outpost.add_workspace(repository, client_settings=settings(server.base_url), trusted=True)
            await workspace.cleared()
            for _ in range(rounds + 2):
                status = git(repository, "status", "--porcelain", "-uall")
                start = time.perf_counter()
                run = await (await outpost.review(workspace, scope)).wait()
                assert run.status == "succeeded", run.error
                found.append((status, (reached[-1] - start) * 1000))
    return found[2:]


async def measure(files: int, scratch: Path, rounds: int) -> dict[str, tuple[float, float]]:
    """By figure, the median milliseconds and the median ratio."""
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
    dirty = []
    for number in range(rounds):
        start = time.perf_counter()
        snapshot = await take_snapshot(repository)
        worktree = await open_worktree(
            repository, snapshot.commit, work / "ours", run_id=f"dirty-{number}", fill="auto"
        )
        dirty.append((time.perf_counter() - start) * 1000)
        await worktree.close(keep=False)
    changed = await to_the_first_request(top, work, rounds, ReviewScope(scope="uncommitted"))

    def ratio(ours: Callable[[Round], float], theirs: str) -> tuple[float, float]:
        return (
            statistics.median(ours(one) for one in clean),
            statistics.median(ours(one) / one[theirs] for one in clean),
        )

    added = statistics.median(one["worktree add"] for one in clean)
    figures = [
        ratio(lambda one: one["ready"], "worktree add"),
        (statistics.median(dirty), statistics.median(dirty) / added),
        ratio(lambda one: one["ready"] + one.get("full", 0.0), "worktree add"),
        ratio(lambda one: one["changes"], "their changes"),
        ratio(lambda one: one["changes without a command"], "their changes"),
        ratio(lambda one: one["gone"], "worktree remove"),
        *(
            (statistics.median(ours for _, ours in one), statistics.median(ours / theirs for theirs, ours in one))
            for one in (reviews, changed)
        ),
    ]
    return dict(zip(GOALS, figures, strict=True))


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
    print("| figure | goal | " + " | ".join(f"{files:,} files: ms (ratio)" for files in results) + " |")
    print("|---" * (len(results) + 2) + "|")
    for name, goal in GOALS.items():
        cells = (f"{one[name][0]:.1f} ({one[name][1]:.3f})" for one in results.values())
        print(f"| {name} | {goal} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
